"""The words by which names and descriptions of arguments speak of files, by language.

Each is an alternative of a regular expression over lower-case text, in which names such as `inputFile` are cut into
their words. What is no whole word is marked by `~` where further letters may stand.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ...base.lazy_regex import Pattern


class Words(NamedTuple):
    """The words of one language.

    Attributes:
        path: a place or a name of a file. Such a word says that the argument names one, wherever it stands.
        file: a file, or what is kept in one.
        folder: what holds files. A path to it is no path to a file.
        write: the file is to be made.
        read: the file is there.
        after: what goes on after a noun without changing it.
    """

    path: str
    file: str
    folder: str
    write: str
    read: str
    after: str


LANGUAGES: Final[Mapping[str, Words]] = {
    "English": Words(
        path="path paths filepath filepaths filename filenames file.name file.names local.file file.uri file.uris",
        file="file files document documents image images picture pictures photo photos video videos audio recording "
        "screenshot pdf pdfs csv docx xlsx pptx workbook spreadsheet presentation deck diagram attachment attachments",
        folder="directory directories dir folder folders repository repo project root workspace vault",
        write="save saves saving be.saved is.saved write written output out destination dest dst "
        "export generated new custom",
        read="read load input source src open upload attach existing original template reference modify edit convert",
        after="to of or and that which from in with on is are for",
    ),
    "German": Words(
        path="~pfad ~pfade dateiname dateinamen",
        file="~datei ~dateien ~dokument ~dokumente ~bild ~bilder video audio",
        folder="~ordner ~verzeichnis ~verzeichnisses",
        write="speicher~ gespeichert schreib~ geschrieben ausgabe~ ziel~",
        read="lesen gelesen laden eingabe~ quell~ öffnen vorhanden~ vorlage~ umwandeln konvertieren bearbeit~",
        after="zu zum von für die das der oder und aus mit",
    ),
    "French": Words(
        path="chemin chemins nom.du.fichier nom.de.fichier noms.de.fichiers",
        file="fichier fichiers document documents image images photo vidéo audio",
        folder="dossier dossiers répertoire répertoires",
        write="enregistr~ sauvegard~ écrire écrit sortie destination export~ généré",
        read="lire charger entrée source ouvrir existant modèle référence convertir modifier",
        after="à de du pour qui ou et dans avec",
    ),
    "Spanish": Words(
        path="ruta rutas nombre.del.archivo nombre.de.archivo nombre.del.fichero nombre.de.fichero",
        file="archivo archivos fichero ficheros documento documentos imagen imágenes foto vídeo video audio",
        folder="carpeta carpetas directorio directorios repositorio proyecto",
        write="guardar guarda guardará escribir salida destino exportar generado",
        read="leer cargar entrada origen abrir existente plantilla template validado convertir editar modificar",
        after="a de del para que o y en con",
    ),
    "Portuguese": Words(
        path="caminho caminhos nome.do.arquivo nome.de.arquivo nome.do.ficheiro",
        file="arquivo arquivos ficheiro ficheiros documento documentos imagem imagens foto vídeo áudio",
        folder="pasta pastas diretório diretórios directório repositório projeto",
        write="salvar salva guardar gravar escrever saída destino exportar gerado",
        read="ler carregar entrada origem abrir existente modelo converter editar modificar",
        after="a de do da para que ou e em com",
    ),
    "Italian": Words(
        path="percorso percorsi nome.del.file nome.file",
        file="file documento documenti immagine immagini foto video audio",
        folder="cartella cartelle directory",
        write="salva~ scrivere uscita destinazione esporta~ generato",
        read="leggere caricare ingresso origine aprire esistente modello convertire modificare",
        after="a di da per che o e in con",
    ),
    "Russian": Words(
        path="путь пути путём имя.файла имени.файла имена.файлов",
        file="файл~ документ документа документы изображение изображения картинка видео аудио",
        folder="папк~ каталог~ директори~ репозитори~",
        write="сохран~ запис~ выходн~ вывод~ экспорт~ назначени~",
        read="чтени~ читать прочитать загруз~ входн~ исходн~ открыть существующ~ шаблон~ редакт~ измен~",
        after="для из с в или и от",
    ),
    "Chinese": Words(
        path="~路径~ ~路徑~ ~文件名~ ~檔名~ ~檔案名~",
        file="~文件 ~檔案 ~文档 ~文檔 ~图片 ~圖片 ~图像 ~视频 ~音频 ~工作簿 ~演示文稿 ~压缩包",
        folder="~目录~ ~目錄~ ~文件夹~ ~資料夾~ ~仓库~",
        write="~保存~ ~存储~ ~儲存~ ~输出~ ~輸出~ ~写入~ ~寫入~ ~导出~ ~生成~ ~自定义~",
        read="~读取~ ~讀取~ ~输入~ ~輸入~ ~源文件~ ~源视频~ ~打开~ ~上传~ ~现有~ ~模板~ ~待~ ~参考~ ~參考~ "
        "~编辑~ ~編輯~ ~修改~",
        after="的 用于",
    ),
    "Japanese": Words(
        path="~パス~ ~ファイル名~",
        file="~ファイル ~文書 ~ドキュメント ~画像 ~動画 ~音声",
        folder="~フォルダ~ ~ディレクトリ~ ~リポジトリ~",
        write="~保存~ ~出力~ ~書き込~ ~書き出~",
        read="~読み~ ~入力~ ~開く~ ~既存~ ~テンプレート~ ~変換する~ ~編集~",
        after="~の ~を",
    ),
    "Korean": Words(
        path="~경로~ ~파일명~ ~파일.이름~",
        file="~파일 ~문서 ~이미지 ~사진 ~동영상 ~오디오",
        folder="~폴더~ ~디렉토리~ ~디렉터리~ ~저장소~",
        write="저장~ ~출력~ ~쓰기~ ~내보~",
        read="~읽~ ~입력~ ~기존~ ~템플릿~ ~변환할~ ~편집~",
        after="~의 ~을 ~를",
    ),
}

RELATIVE_TO: Final = Pattern(r"\brelative to\b[^,.;)]*|\brelativ zu[mr]?\b[^,.;)]*|相对于[^，。]*")
"""The start of a relative path. It is no folder that the argument names."""

STEM_ONLY: Final = Pattern(r"without (?:the |file |its )?(?:extension|suffix)|ohne endung|不含扩展名")
"""The name of a file that is completed: no path may take its place."""


@functools.cache
def alternatives(field: str, *, prefix: str = "", is_loose: bool = False) -> str:
    """Returns an expression for any of the words of a field.

    Args:
        prefix: what `~` before a word stands for.
        is_loose: True if a word that may have letters before it may have some after it too.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for words in LANGUAGES.values():
        for word in getattr(words, field).split():
            inner = r"\W{1,2}".join(re.escape(part) for part in word.strip("~").split("."))
            before = prefix if word.startswith("~") else r"\b"
            after = "" if word.endswith("~") or (is_loose and word.startswith("~")) else r"\b"
            found.setdefault((before, after), []).append(inner)
    # Words of one kind stand together: the beginning of such a group is what the compiled expression looks for first.
    groups = [f"{before}(?:{'|'.join(dict.fromkeys(inner))}){after}" for (before, after), inner in found.items()]
    return f"(?:{'|'.join(groups)})"
