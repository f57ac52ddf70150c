"""Opens and creates files without following a symbolic link anywhere in the path.

A path that was checked and is then opened by name may lead elsewhere by then: another process that may write to one of
its folders can put a link there in between. So a path is resolved once and judged as text. Then it is walked from `/`
one component at a time, each opened relative to the one before and refused if it is a link. So the file that is opened
is the one that was judged.

All functions block, and raise `OSError` for errors of the file system. They are called in worker threads.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from contextlib import suppress
from typing import BinaryIO, Final

from ...storage.kernel_copy import copy_in_kernel

# O_PATH, where it exists, needs no permission to list the folder.
_FOLDER: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_SAME: Final = ("st_dev", "st_ino", "st_mode", "st_size", "st_mtime_ns")
# O_NONBLOCK does not wait for the writer of a FIFO, and O_NOCTTY adopts no terminal, should one of them have been put
# there after the check.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def is_within(path: str, folder: str) -> bool:
    """True if `path` is `folder` or below it. Both are absolute and resolved; the file system is not asked."""
    return path == folder or path.startswith(folder if folder.endswith("/") else folder + "/")


def is_plain(filename: str) -> bool:
    """True if `filename` is one path component that stays in the folder that it is put in, and is UTF-8."""
    try:
        filename.encode()
    except UnicodeEncodeError:
        return False
    return filename not in ("", ".", "..") and "/" not in filename and "\0" not in filename


def reason_of(error: OSError) -> str:
    """Returns the reason of an error without the path, which the error's own text may contain."""
    if error.filename is None and error.strerror:
        return error.strerror
    return os.strerror(error.errno) if error.errno is not None else "unknown error"


def open_folder(path: str, *, make: bool = False) -> int:
    """Opens the folder at the absolute, resolved `path`, for use as `dir_fd`. The caller closes it.

    Args:
        make: create each missing folder, with mode 0700.
    """
    assert path.startswith("/")
    folder = os.open("/", _FOLDER)
    try:
        for name in path.split("/"):
            if name:
                inner = _open_inner(folder, name, make=make)
                os.close(folder)
                folder = inner
    except BaseException:
        os.close(folder)
        raise
    return folder


def _open_inner(folder: int, name: str, *, make: bool) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
    with suppress(FileExistsError):  # another thread or process just made it
        os.mkdir(name, 0o700, dir_fd=folder)
    return os.open(name, _FOLDER, dir_fd=folder)


def open_regular(path: str, *, may_be_linked: bool) -> BinaryIO:
    """Opens the regular file at the absolute, resolved `path` for reading, unbuffered.

    Args:
        may_be_linked: the file may have other names (hard links). They can lie in any folder.

    Raises:
        IsADirectoryError: `path` is a folder.
        FileNotFoundError: there is no such file, or another was put in its place meanwhile.
        PermissionError: `path` is a link, a device, a FIFO or a socket, or may not be read, or has other names.
    """
    folder = open_folder(os.path.dirname(path))
    name = os.path.basename(path)
    try:
        # Checked before it is opened as well, since merely opening some devices has effects.
        _check_regular(os.stat(name, dir_fd=folder, follow_symlinks=False), may_be_linked=may_be_linked)
        file = os.fdopen(os.open(name, _FILE, dir_fd=folder), "rb", buffering=0)
        try:
            _check_regular(os.fstat(file.fileno()), may_be_linked=may_be_linked)
            if not may_be_linked:
                # A file whose name here was removed after it was opened has one name as well: that elsewhere.
                named = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if not os.path.samestat(named, os.fstat(file.fileno())):
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
                _check_regular(named, may_be_linked=False)
        except BaseException:
            file.close()
            raise
    finally:
        os.close(folder)
    return file


def remove_regular(path: str, was: os.stat_result) -> bool:
    """Removes the file at the absolute, resolved `path` if it is the one of `was`, and was not written since.

    Another file that is put there between the check and the removal, two system calls later, is removed instead.

    Returns:
        True if it was removed.
    """
    folder = open_folder(os.path.dirname(path))
    name = os.path.basename(path)
    try:
        now = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if any(getattr(now, field) != getattr(was, field) for field in _SAME):
            return False
        os.unlink(name, dir_fd=folder)
        return True
    finally:
        os.close(folder)


def _check_regular(found: os.stat_result, *, may_be_linked: bool) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise PermissionError(errno.EPERM, "not a regular file")
    if found.st_nlink > 1 and not may_be_linked:
        raise PermissionError(
            errno.EPERM,
            "it has several names (hard links), which may lie elsewhere: copy it, or list its folder in the server's "
            "hard_linked_roots",
        )


class Placement:
    """A new file that appears in its folder complete, or not at all.

    Args:
        folder: absolute and resolved; created as far as it is missing.
        filename: see `is_plain`.

    Attributes:
        is_there: a regular file has that name already, and no other name; it is left alone, and there is no `file` to
            write.
        stat: the stat of the existing or finished file.
    """

    def __init__(self, folder: str, filename: str) -> None:
        assert is_plain(filename)
        self._filename = filename
        self._temporary: str | None = None
        self._folder = open_folder(folder, make=True)
        try:
            self.stat = self._look()
            self.is_there = self.stat is not None
            if not self.is_there:
                name = f".{secrets.token_hex(16)}.part"
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                self.file = os.fdopen(os.open(name, flags, 0o600, dir_fd=self._folder), "wb")
                self._temporary = name
        except BaseException:
            os.close(self._folder)
            raise

    def _look(self) -> os.stat_result | None:
        try:
            found = os.stat(self._filename, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return found if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 else None

    def copy_from(self, path: str) -> None:
        """Copies the file at `path`, which is ours, and shares its blocks if the file system can."""
        with open(path, "rb", buffering=0) as source:
            copy_in_kernel(source.fileno(), self.file.fileno(), os.fstat(source.fileno()).st_size)
            shutil.copyfileobj(source, self.file, 1024 * 1024)

    def finish(self) -> None:
        """Gives the file its name. Replaces a link or anything else with that name, except a folder. A hard link is
        replaced too: the file's other names keep their content."""
        assert self._temporary is not None
        self.file.flush()
        self.stat = os.fstat(self.file.fileno())
        self.file.close()
        os.replace(self._temporary, self._filename, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._temporary = None

    def close(self) -> None:
        """Closes the folder, and removes the file if it was not finished."""
        if self._temporary is not None:
            with suppress(OSError):
                self.file.close()
            with suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._folder)
        os.close(self._folder)
