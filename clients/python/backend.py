"""Builds the packages with the standard library alone, so that pip needs no index for a build tool: see PEP 517."""

from __future__ import annotations

import base64
import hashlib
import re
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Dict, Optional

HERE = Path(__file__).resolve().parent
VERSION = re.findall(r'^__version__ = "(.+)"$', (HERE / "src/clustermutex/version.py").read_text(), re.MULTILINE)[0]
BASE = f"clustermutex-{VERSION}"
SOURCES = ["pyproject.toml", "backend.py", "README.md", "LICENSE", *sorted(
    str(path.relative_to(HERE)) for path in (HERE / "src/clustermutex").iterdir() if path.suffix in (".py", ".typed"))]
METADATA = f"""Metadata-Version: 2.1
Name: clustermutex
Version: {VERSION}
Summary: Distributed locks on etcd that show who holds what, and why
License: Apache-2.0
Keywords: lock,mutex,etcd,distributed
Classifier: License :: OSI Approved :: Apache Software License
Classifier: Operating System :: OS Independent
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: System :: Distributed Computing
Classifier: Typing :: Typed
Project-URL: Source, https://github.com/clustermutex/unlocker
Requires-Python: >=3.9
Description-Content-Type: text/markdown

{(HERE / "README.md").read_text(encoding="utf-8")}"""


def build_wheel(directory: str, config_settings: Any = None, metadata_directory: Optional[str] = None) -> str:
    """Write the wheel, and return its name."""
    return _wheel(directory, {name[len("src/"):]: (HERE / name).read_bytes()
                              for name in SOURCES if name.startswith("src/")})


def build_editable(directory: str, config_settings: Any = None, metadata_directory: Optional[str] = None) -> str:
    """Write a wheel that points to the sources here."""
    return _wheel(directory, {"clustermutex.pth": f"{HERE / 'src'}\n".encode()})


def build_sdist(directory: str, config_settings: Any = None) -> str:
    """Write the source archive, and return its name."""
    with tarfile.open(Path(directory) / f"{BASE}.tar.gz", "w:gz") as archive:
        for name in SOURCES:
            archive.add(HERE / name, f"{BASE}/{name}")
        info = Path(directory) / "PKG-INFO"
        info.write_text(METADATA, encoding="utf-8")
        archive.add(info, f"{BASE}/PKG-INFO")
        info.unlink()
    return f"{BASE}.tar.gz"


def _wheel(directory: str, files: Dict[str, bytes]) -> str:
    about = f"{BASE}.dist-info"
    files[f"{about}/LICENSE"] = (HERE / "LICENSE").read_bytes()
    files[f"{about}/METADATA"] = METADATA.encode()
    files[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: backend\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    lines = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[f"{about}/RECORD"] = "\n".join([*lines, f"{about}/RECORD,,", ""]).encode()
    name = f"{BASE}-py3-none-any.whl"
    with zipfile.ZipFile(Path(directory) / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return name


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
