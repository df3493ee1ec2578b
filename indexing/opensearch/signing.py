"""Signatures of requests to Amazon OpenSearch Service (AWS Signature Version 4), by opensearch-py and botocore.

botocore finds the credentials as AWS's own tools do: in the environment, in a profile, or in the role of the machine.
"""

from collections.abc import Callable, Mapping

from keystone.indexing.errors import MissingPackage, UserError

REGION = "OPENSEARCH_AWS_REGION"
"""The environment variable with the region of the cluster, such as eu-west-1. It makes Keystone sign requests."""
SERVICE = "es"

Sign = Callable[[str, str, bytes | None], Mapping[str, str]]
"""Makes the headers that sign a request from its method, its whole URL and its body."""


def make_signer(region: str) -> Sign:
    """Make the function that signs each request to a cluster in an AWS region.

    `UserError` if there are no credentials, `MissingPackage` if botocore or opensearch-py is not installed.
    """
    try:
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
        from opensearchpy.helpers.signer import AWSV4Signer
    except ImportError as error:
        raise MissingPackage(f"botocore is needed for {REGION}: pip install 'keystone-rag[aws]'") from error
    expected = "expected AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role of this machine"
    try:
        credentials = Session().get_credentials()
    except BotoCoreError as error:
        raise UserError(f"{REGION}: AWS's credentials cannot be read: {error}; {expected}") from error
    if credentials is None:
        raise UserError(f"{REGION}: found no credentials of AWS, {expected}")
    signer = AWSV4Signer(credentials, region, SERVICE)

    def sign(method: str, url: str, body: bytes | None) -> Mapping[str, str]:
        try:
            return signer.sign(method, url, body or b"")
        except BotoCoreError as error:
            raise UserError(f"{REGION}: AWS's credentials cannot be read: {error}; {expected}") from error

    return sign
