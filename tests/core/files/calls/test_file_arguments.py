"""Tests of which arguments of a tool are taken for files: names, descriptions, languages, shapes of schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from each_row import each_row
from hypothesis import given, settings
from hypothesis import strategies as st
from isthmus.core.files.calls.file_arguments import ABOUT_MAX_CHARS, FileArguments, file_arguments
from isthmus.core.files.calls.file_words import LANGUAGES


def judged(properties: object, *, name: str = "t", description: str = "", **schema: object) -> FileArguments:
    tool = {"name": name, "description": description, "inputSchema": {"properties": properties, **schema}}
    return file_arguments(json.dumps(tool).encode())


def kind(key: str, about: str = "", *, tool: str = "t") -> str:
    """Returns `read`, `write` or nothing for an argument that is a text."""
    reads, writes = judged({key: string(description=about) if about else string()}, name=tool)
    assert not (reads and writes)
    return "read" if reads else "write" if writes else ""


def string(**more: object) -> dict[str, object]:
    return {"type": "string", **more}


# --- Names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("path", "read"), ("file_path", "read"), ("inputFile", "read"), ("imagePaths", "read"),
        ("fileAbsolutePath", "read"), ("PDF_PATH", "read"), ("filename", "read"), ("input_file_name", "read"),
        ("document", "read"), ("attachments", "read"), ("image_source", "read"), ("uri", "read"),
        ("resourceUri", "read"), ("archivo", "read"), ("ruta", "read"),
        ("output_path", "write"), ("outputFile", "write"), ("dest_path", "write"), ("destination_file", "write"),
        ("profile", ""), ("security", ""), ("filetype", ""), ("file_format", ""), ("filename_pattern", ""),
        ("file_id", ""), ("document_handle", ""), ("document_id", ""), ("fileKey", ""), ("file_hash", ""),
        ("file_content", ""), ("image_base64", ""), ("pathPrefix", ""), ("url", ""), ("image_url", ""),
        ("page_urls", ""), ("name", ""), ("repo_root_path", ""), ("project_path", ""), ("folder_path", ""),
        ("output_dir", ""), ("remote_path", ""), ("element", ""), ("selector", ""), ("text", ""), ("", ""),
    ],
)  # fmt: skip
def test_the_last_word_of_a_name_says_what_it_is(key: str, expected: str) -> None:
    assert kind(key) == expected


@pytest.mark.parametrize(
    ("properties", "reads"),
    [
        ({"file": {"properties": {"size": string()}}}, ()),
        ({"output": {"properties": {"path": string()}}}, ("output.path",)),
        ({"size": {"properties": {"file": string()}}}, ("size.file",)),
        ({"path": {"properties": {"output": string()}}}, ()),
        ({"file": {"type": "array", "items": {"properties": {"size": string()}}}}, ()),
        ({"files": {"type": "array", "items": {"properties": {"path": string()}}}}, ("files.path",)),
    ],
)
def test_an_argument_is_judged_by_its_own_name(properties: dict[str, Any], reads: tuple[str, ...]) -> None:
    """The names of enclosing objects do not count."""
    assert judged(properties).reads == reads


@pytest.mark.parametrize(
    ("tool", "key", "expected"),
    [
        ("read_file", "path", "read"),
        ("convert", "path", "read"),
        ("list_directory", "path", ""),
        ("create_directory", "path", ""),
        ("directory_tree", "path", ""),
        ("search_files", "path", ""),
        ("start_search", "path", ""),
        ("delete_file", "path", ""),
        ("list_sheets", "path", "read"),
        ("search_pdf", "path", "read"),
        ("write_file", "path", "write"),
        ("fs_write_text", "file_path", "write"),
        ("createWorkbook", "path", "write"),
        ("create_word_document", "filename", "write"),
        ("create_table", "path", "read"),
        ("create_document", "template_path", "read"),
        ("create_document", "image", "read"),
        ("move_file", "source", "read"),
        ("move_file", "destination", "write"),
        ("copy_files", "dst", "write"),
        ("move_issue", "source", ""),
    ],
)
def test_the_name_of_the_tool_decides_where_nothing_is_said(tool: str, key: str, expected: str) -> None:
    assert kind(key, tool=tool) == expected


# --- Descriptions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ("Absolute path of a video", "read"),
        ("Name of the image", "read"),
        ("The file to convert.", "read"),
        ("One or more PDF files, in order", "read"),
        ("PDF URL or local file path", "read"),
        ("Filename to load", "read"),
        ("File to read, and to save the result in", "read"),
        ("Source document", "read"),
        ("The URI of the document", "read"),
        ("Where the file is written: a path", "write"),
        ("Path to save to (if different from the source)", "write"),
        ("The path, relative to the current directory, to save to", "write"),
        ("File name for the output image", "write"),
        ("Path to the template, which is written to a new file", "read"),
        ("URL of the PDF file", ""),
        ("Image URL", ""),
        ("URL of the page to visit", ""),
        ("Document title", ""),
        ("File type, such as pdf", ""),
        ("Image format", ""),
        ("The id of the document", ""),
        ("Text to look for in the file", ""),
        ("A JSON document to insert", ""),
        ("profile, filed, imagery", ""),
        ("Path to the directory", ""),
        ("Directory that holds the files", ""),
        ("Directory of PDFs, or a list of file paths", "read"),
        ("The file or folder to compress", "read"),
        ("Path of the Git repository", ""),
        ("Name of the file, without extension", ""),
        ("A number. The path is found by itself.", ""),
        ("Optional. The path of the file", "read"),
    ],
)
def test_the_description_says_what_an_argument_is(about: str, expected: str) -> None:
    assert kind("p", about) == expected


@pytest.mark.parametrize(
    ("key", "about", "expected"),
    [
        ("path", "The endpoint, such as /users", "read"),  # nothing says otherwise
        ("path", "Root of the project", ""),
        ("path", "The folder to list", ""),
        ("path", "Absolute or relative path of the diagram", "read"),
        ("filename", "File name to save the page to", "write"),
        ("picture", "The filepath of a picture that is blended in", "read"),
        ("save_as", "Optional filename to save the code to", "write"),
        ("image", "Name of the Docker image", ""),
        ("image", "An image file path or an http(s) URL", "read"),
        ("document", "The JSON that is inserted", ""),
        ("sheet_name", "Sheet in the Excel file", ""),
        ("document_handle", "Handle of the file that was opened by its path", ""),
        ("query", "A path or text to look for", ""),
    ],
)
def test_name_and_description_are_read_together(key: str, about: str, expected: str) -> None:
    assert kind(key, about) == expected


def test_the_beginning_of_a_description_is_read() -> None:
    assert kind("p", "x" * (ABOUT_MAX_CHARS - 5) + " path") == "read"
    assert kind("p", "x" * (ABOUT_MAX_CHARS - 4) + " path") == ""


SAID: dict[str, tuple[str, str, str, str]] = {
    "English": ("Path of the video", "The image to read", "Path where the result is saved", "Path of the folder"),
    "German": ("Dateipfad des Videos", "Die Bilddatei, die gelesen wird", "Pfad der Ausgabedatei", "Pfad zum Ordner"),
    "French": ("Chemin de la vidéo", "Le fichier à lire", "Chemin du fichier de sortie", "Chemin du dossier"),
    "Spanish": ("Ruta del vídeo", "El archivo que se lee", "Ruta del archivo de salida", "Ruta de la carpeta"),
    "Portuguese": ("Caminho do vídeo", "O arquivo a ler", "Caminho do arquivo de saída", "Caminho da pasta"),
    "Italian": ("Percorso del video", "Il documento da leggere", "Percorso di uscita", "Percorso della cartella"),
    "Russian": ("Путь к видео", "Файл для чтения", "Путь для сохранения файла", "Путь к папке"),
    "Chinese": ("视频文件路径", "要分析的图片", "文档保存路径", "输出目录路径"),
    "Japanese": ("動画のパス", "読み込む画像ファイル", "出力ファイルのパス", "フォルダのパス"),
    "Korean": ("파일의 절대 경로", "분석할 이미지", "결과 파일 저장 경로", "폴더 경로"),
}
"""Descriptions in each language of a path, of a file without the word path, of a file to be made, of a folder."""


def test_each_language_is_tried() -> None:
    assert SAID.keys() == LANGUAGES.keys()


@each_row("language", list(SAID))
def test_descriptions_are_read_in_each_language(language: str) -> None:
    assert [kind("p", about) for about in SAID[language]] == ["read", "read", "write", ""]


@pytest.mark.parametrize(
    "description",
    [
        "Reads.\n\nArgs:\n    where: Path of the file\n    out: Path to save to\n    n: a number",
        "Reads.\n\n:param where: the file to read\n:param out: the file to write\n",
        "Reads. Parameters:\n- `where` (str, optional): Path\n- **out** - Output file path",
        "Reads. REQUIRES: where (source path), out (destination path). OPTIONAL: n (a number)",
        "读取。参数：\n  where : str - 源视频文件路径\n  out: 输出路径\n",
        "读取。参数: where (str 或 list) = 文件路径 || out (str) = 保存路径 || n = 数",
    ],
)
def test_arguments_may_be_described_by_the_tool(description: str) -> None:
    properties = {name: string() for name in ("where", "out", "n")}
    assert judged(properties, description=description) == (("where",), ("out",))


def test_the_schema_comes_before_the_description_of_the_tool() -> None:
    found = judged({"where": string(description="A number")}, description="Args:\n  where: Path of the file")
    assert found == FileArguments()


# --- Shapes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "is_file"),
    [
        (string(), True),
        ({"type": ["null", "string"]}, True),
        ({"type": ["string", "array"], "items": string()}, True),
        ({"type": "array", "items": string()}, True),
        ({"type": "array"}, True),
        ({"type": "array", "items": {}}, True),
        ({"anyOf": [string(), {"type": "null"}]}, True),
        ({"anyOf": [{"type": "array", "items": string()}, {"type": "null"}]}, True),
        ({"$ref": "#/$defs/text"}, True),
        ({}, True),
        ({"description": "Path of the file"}, True),
        ({"type": "integer"}, False),
        ({"type": ["boolean", "string"]}, False),
        ({"type": "array", "items": {"type": "number"}}, False),
        ({"type": "object"}, False),
        (string(enum=["a", "b"]), False),
        ({"const": "a"}, False),
        ({"$ref": "#/$defs/none"}, False),
        (True, False),
        (5, False),
    ],
)
def test_an_argument_takes_a_text_or_a_list_of_texts(schema: object, is_file: bool) -> None:
    assert judged({"path": schema}, **{"$defs": {"text": string()}}).reads == (("path",) if is_file else ())


def test_a_filename_beside_a_path_is_only_a_name() -> None:
    assert judged({"file_path": string(), "filename": string()}).reads == ("file_path",)
    assert judged({"filename": string(), "text": string()}).reads == ("filename",)


def test_arguments_come_in_the_order_of_the_schema() -> None:
    found = judged({name: string() for name in ("b_path", "output_path", "a_file", "n", "c_path")})
    assert found == (("b_path", "a_file", "c_path"), ("output_path",))


@pytest.mark.parametrize(
    ("others", "about", "reads"),
    [
        ((), "", True),
        (("owner",), "", True),
        (("owner", "repo"), "", False),
        (("repo_path",), "", False),
        (("method",), "", False),
        (("x",), "Path of the Git repository", False),
    ],
)
def test_paths_of_repositories_and_web_services_are_no_files(others: tuple[str, ...], about: str, reads: bool) -> None:
    properties = {"path": string(), **{name: string(description=about) for name in others}}
    assert (judged(properties).reads == ("path",)) is reads


@pytest.mark.parametrize("tool", [b"", b"5", b"{}", b'{"inputSchema":true}', b'{"inputSchema":{"properties":5}}'])
def test_tools_without_a_readable_schema_take_no_files(tool: bytes) -> None:
    assert file_arguments(tool) == FileArguments()


JSON = st.recursive(
    st.none() | st.booleans() | st.sampled_from(["string", "array", "path: a file", "#/$defs/a", "\ud800"]),
    lambda below: st.lists(below, max_size=3)
    | st.dictionaries(
        st.sampled_from(["name", "inputSchema", "properties", "items", "anyOf", "type", "description", "$ref", "$defs",
                         "path", "output", "enum"]),
        below, max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(tool=st.fixed_dictionaries({"inputSchema": JSON, "name": JSON, "description": JSON}) | JSON)
def test_any_entry_can_be_read(tool: Any) -> None:
    """An argument is read or written, and not both."""
    reads, writes = file_arguments(json.dumps(tool).encode())
    assert set(reads).isdisjoint(writes)
