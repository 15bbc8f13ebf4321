"""Identity and rights as one part: plugs tokens, RBAC, reviews and certificate requests into the API core. Wire."""

from pathlib import Path

from kruntimes.local.apiserver import csr, escalation, rbac, reviews, token_requests
from kruntimes.local.apiserver.authn import Authenticator
from kruntimes.local.apiserver.certificates import private_file
from kruntimes.local.apiserver.kinds.rbac import Bindings, Roles
from kruntimes.local.apiserver.parts import Parts
from kruntimes.local.apiserver.policies import Policies
from kruntimes.local.apiserver.tokens import TokenKey


def install(parts: Parts, *, key: TokenKey) -> None:
    """Puts everything about who asks and what he may into *parts*. key: signs ServiceAccount tokens."""
    authenticator, policies = Authenticator(key), Policies()
    parts.authenticate, parts.authorize = authenticator, policies.authorize
    parts.attach += [authenticator.attach, policies.attach]
    parts.reviews |= reviews.reviews(policies, authenticator)
    parts.acts["", "serviceaccounts", "token"] = token_requests.token_request(key)
    parts.strategies |= {rbac.ROLES: Roles, rbac.CLUSTER_ROLES: Roles, csr.KEY: csr.RequestStrategy}
    parts.strategies |= {rbac.BINDINGS: Bindings, rbac.CLUSTER_BINDINGS: Bindings}
    parts.admits += [escalation.no_escalation(policies.now), csr.signers_only(policies.authorize)]


def signing_key(folder: Path) -> TokenKey:
    """The key of a state folder, made there where it is missing: tokens outlive a restart of the server."""
    file = folder / "serviceaccounts.pem"
    if file.exists():
        return TokenKey.from_pem(file.read_bytes())
    made = TokenKey.generate()
    private_file(file, made.to_pem())
    return made
