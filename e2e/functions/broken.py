"""Cannot be imported."""

import json


def handler(event)
    return json.dumps(event)
