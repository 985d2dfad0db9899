"""A day's work of boto3 at a gateway: `boto3_day.py URL BUCKET`, with the keys in the environment.

It is run with the distribution's boto3 and with the newest, which adds a CRC32 to what it sends and asks for it.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import sys
import urllib.request
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

MIB = 1 << 20
PART = 5 * MIB
KEYS = 2500

URL, BUCKET = sys.argv[1:]
CONFIG = Config(signature_version="s3v4", max_pool_connections=16)
S3: Any = boto3.client("s3", endpoint_url=URL, config=CONFIG)


def put(key: str, body: bytes, **more: Any) -> Any:
    return S3.put_object(Bucket=BUCKET, Key=key, Body=body, **more)


def get(key: str, **more: Any) -> bytes:
    return S3.get_object(Bucket=BUCKET, Key=key, **more)["Body"].read()


def refused(call: Callable[[], Any]) -> int:
    """The status of an answer that must be an error."""
    try:
        call()
    except ClientError as error:
        return error.response["ResponseMetadata"]["HTTPStatusCode"]
    raise AssertionError("it was not refused")


def text(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def crc32(data: bytes) -> bytes:
    return zlib.crc32(data).to_bytes(4, "big")


def objects() -> None:
    body = os.urandom(100_000)
    etag = put("a b/ü", body, Metadata={"colour": "red"})["ETag"]
    assert etag == f'"{hashlib.md5(body).hexdigest()}"', etag
    assert get("a b/ü") == body
    assert get("a b/ü", Range="bytes=70000-70009") == body[70_000:70_010]
    assert get("a b/ü", Range="bytes=-7") == body[-7:]
    assert get("a b/ü", IfMatch=etag) == body
    assert refused(lambda: get("a b/ü", IfMatch='"other"')) == 412
    assert refused(lambda: get("a b/ü", IfNoneMatch=etag)) == 304
    assert get("a b/ü", IfNoneMatch='"other"') == body
    assert S3.head_object(Bucket=BUCKET, Key="a b/ü")["Metadata"] == {"colour": "red"}
    assert refused(lambda: get("absent")) == 404
    # The boto3 of Debian knows no conditions of puts.
    if "IfNoneMatch" in S3.meta.service_model.operation_model("PutObject").input_shape.members:
        assert refused(lambda: put("a b/ü", b"x", IfNoneMatch="*")) == 412
        assert refused(lambda: put("a b/ü", b"x", IfMatch='"other"')) == 412
        put("once", b"x", IfNoneMatch="*")
        put("once", b"y", IfMatch=f'"{hashlib.md5(b"x").hexdigest()}"')
        assert get("once") == b"y"


def parts() -> None:
    body = os.urandom(3 * PART + 17)
    config = TransferConfig(multipart_threshold=PART, multipart_chunksize=PART, max_concurrency=4)
    more = {"ChecksumAlgorithm": "CRC32"}
    S3.upload_fileobj(io.BytesIO(body), BUCKET, "big", ExtraArgs=more, Config=config)
    head = S3.head_object(Bucket=BUCKET, Key="big", ChecksumMode="ENABLED")
    pieces = [body[at : at + PART] for at in range(0, len(body), PART)]
    md5 = hashlib.md5(b"".join(hashlib.md5(it).digest() for it in pieces)).hexdigest()
    assert head["ETag"] == f'"{md5}-4"', head["ETag"]
    crc = text(crc32(b"".join(map(crc32, pieces))))
    assert head["ChecksumCRC32"] == f"{crc}-4", head["ChecksumCRC32"]
    # By `CopyObject`, and in parts.
    S3.copy_object(Bucket=BUCKET, Key="whole copy", CopySource={"Bucket": BUCKET, "Key": "big"})
    S3.copy({"Bucket": BUCKET, "Key": "big"}, BUCKET, "copy in parts", Config=config)
    for key in ("big", "whole copy", "copy in parts"):
        into = io.BytesIO()
        S3.download_fileobj(BUCKET, key, into, Config=config)
        assert into.getvalue() == body, key
    # As this boto3 does it when nothing is asked for.
    S3.upload_fileobj(io.BytesIO(body), BUCKET, "big", Config=config)
    assert get("big") == body


def checksums() -> None:
    body = os.urandom(20_000)
    for name, digest in (("CRC32", crc32(body)), ("SHA256", hashlib.sha256(body).digest())):
        field = f"Checksum{name}"
        # As boto3 reckons it, as it is given, and a wrong one.
        assert put(name, body, ChecksumAlgorithm=name)[field] == text(digest)
        put(name, body, **{field: text(digest)})
        wrong = {field: text(bytes(len(digest)))}
        assert refused(lambda: put(name, b"wrong", **wrong)) == 400
        head = S3.head_object(Bucket=BUCKET, Key=name, ChecksumMode="ENABLED")
        assert head[field] == text(digest), head
        # Here boto3 itself compares.
        assert get(name, ChecksumMode="ENABLED") == body


def signed_urls() -> None:
    def ask(operation: str, body: bytes | None) -> bytes:
        url = S3.generate_presigned_url(operation, Params={"Bucket": BUCKET, "Key": "by/ü rl"})
        request = urllib.request.Request(url, data=body, method="PUT" if body else "GET")
        with urllib.request.urlopen(request) as answer:
            return answer.read()

    ask("put_object", b"signed")
    assert ask("get_object", None) == b"signed"


def many_keys() -> None:
    keys = [f"many/{n:05}" for n in range(KEYS)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: put(key, key.encode()), keys))
    pages = list(S3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="many/"))
    assert [page["KeyCount"] for page in pages] == [1000, 1000, 500]
    assert [it["Key"] for page in pages for it in page["Contents"]] == keys


def delete_all() -> None:
    pages = S3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
    for page in list(pages):
        named = [{"Key": it["Key"]} for it in page["Contents"]]
        answer = S3.delete_objects(Bucket=BUCKET, Delete={"Objects": named})
        assert len(answer["Deleted"]) == len(named) and "Errors" not in answer, answer
    S3.delete_bucket(Bucket=BUCKET)


S3.create_bucket(Bucket=BUCKET)
for work in (objects, parts, checksums, signed_urls, many_keys, delete_all):
    work()
print("boto3", boto3.__version__)
