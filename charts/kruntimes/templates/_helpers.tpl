{{/* Names are fixed: certificates, roles and the operator know the services by them, so there is one release in a cluster. */}}

{{- define "kruntimes.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/part-of: kruntimes
app.kubernetes.io/instance: {{ .Release.Name | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Of one component; takes a list of the root and its name. */}}
{{- define "kruntimes.selector" -}}
app.kubernetes.io/name: kruntimes-{{ index . 1 }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* repository:tag or repository@digest; takes a list of an image and the tag where it names none. */}}
{{- define "kruntimes.imageName" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (index . 1) }}
{{- end -}}
{{- end }}

{{- define "kruntimes.image" -}}
{{ include "kruntimes.imageName" (list .Values.image .Chart.AppVersion) }}
{{- end }}

{{/* What the published URLs begin with. */}}
{{- define "kruntimes.gatewayHost" -}}
kruntimes-gateway.{{ .Release.Namespace }}.svc
{{- end }}

{{- define "kruntimes.gatewayUrl" -}}
{{- $port := int .Values.gateway.service.port -}}
{{ .Values.gateway.url | default (printf "https://%s%s" (include "kruntimes.gatewayHost" .) (ternary "" (printf ":%d" $port) (eq $port 443))) }}
{{- end }}

{{/* The names in the serving certificate: the Service's first. */}}
{{- define "kruntimes.gatewayNames" -}}
{{- $host := include "kruntimes.gatewayHost" . -}}
{{- $names := list $host (printf "%s.%s" $host .Values.clusterDomain) (printf "kruntimes-gateway.%s" .Release.Namespace) "kruntimes-gateway" -}}
{{- if .Values.gateway.url -}}
{{- $names = append $names (get (urlParse .Values.gateway.url) "hostname" | trimPrefix "[" | trimSuffix "]") -}}
{{- end -}}
{{ concat $names .Values.gateway.hostnames | uniq | join "," }}
{{- end }}

{{/* Pod security "restricted". The user is the one that every image of ours names. */}}
{{- define "kruntimes.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "kruntimes.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Where a component's Pods go; takes a list of the root, its values and its name. */}}
{{- define "kruntimes.placement" -}}
{{- $values := index . 1 -}}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if hasKey $values "topologySpreadConstraints" }}
topologySpreadConstraints:
  {{- if $values.topologySpreadConstraints }}
  {{- toYaml $values.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "kruntimes.selector" (list (index . 0) (index . 2)) | nindent 8 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* What every service is told. */}}
{{- define "kruntimes.env" -}}
- {name: KRUNTIMES_NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
- {name: KRUNTIMES_POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
- {name: KRUNTIMES_POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
- {name: KRUNTIMES_POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: KRUNTIMES_BIND_ADDRESS, value: {{ .Values.bindAddress | quote }}}
- {name: KRUNTIMES_INSTANCE, value: {{ .Release.Name | quote }}}
- {name: KRUNTIMES_TRUST_DOMAIN, value: {{ .Values.trustDomain | quote }}}
- {name: KRUNTIMES_DEFAULT_TIMEOUT, value: {{ .Values.invocation.defaultTimeoutSeconds | quote }}}
- {name: KRUNTIMES_MAX_TIMEOUT, value: {{ .Values.invocation.maxTimeoutSeconds | quote }}}
- {name: KRUNTIMES_LOG_LEVEL, value: {{ .Values.logLevel | quote }}}
{{- end }}

{{- define "kruntimes.gatewayDir" -}}
/run/kruntimes-gateway
{{- end }}

{{/* A PodDisruptionBudget where there is more than one replica; takes a list of the root and the component. */}}
{{- define "kruntimes.disruptionBudget" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
{{- if and $values.podDisruptionBudget.enabled (gt (int $values.replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: kruntimes-{{ index . 1 }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "kruntimes.labels" $root | nindent 4 }}
spec:
  maxUnavailable: {{ $values.podDisruptionBudget.maxUnavailable }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "kruntimes.selector" . | nindent 6 }}
{{- end }}
{{- end }}
