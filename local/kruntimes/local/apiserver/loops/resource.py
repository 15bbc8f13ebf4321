"""The resources that loops work on. Pure."""

from kruntimes.local.apiserver.api import Api
from kruntimes.local.apiserver.resources import Resource


def resource(api: Api, key: tuple[str, str]) -> Resource:
    """The built-in resource of that group and plural."""
    found = api.resources.find(key[0], "v1", key[1])
    assert found is not None, "all loops work on built-in resources, which are always there"
    return found
