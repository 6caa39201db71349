# SPDX-License-Identifier: Apache-2.0
"""Tests opdock inspect on wheels, folders and packages, for machines that are described."""

import html.parser
import os
import re
import stat
import struct
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import CASES, PLUGINS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from native_files import fat_binary, install, library, wheel


@pytest.fixture
def made(tmp_path):
    """Returns made(*architectures, **options) -> the bytes of a library."""

    def make(*archs, **options):
        return library(tmp_path / "made" / "x.so", archs=archs, **options)

    return make


def only(report):
    assert len(report["packages"]) == 1, report["packages"]
    return report["packages"][0]


def codes(reasons):
    return [reason["code"] for reason in reasons]


# ---- for which GPUs


@pytest.mark.parametrize(
    "gpu, driver, code, image, cause",
    [
        ("sm_90", "570", "native", "sm_90", None),
        ("9.0", "570", "native", "sm_90", None),
        ("sm_86", "570", "native", "sm_80", None),
        ("sm_70", "570", "none", None, "arch-mismatch"),
        ("sm_100", "570", "none", None, "arch-mismatch"),
        ("sm_90", "470", "none", None, "driver-too-old"),
        ("sm_90", None, "undecided", "sm_90", "toolkit-unknown"),
    ],
)
def test_a_wheel_for_some_architectures(opdock, tmp_path, made, gpu, driver, code, image, cause):
    path = wheel(tmp_path, {"foo/x.so": made(80, 90)}, name="foo", version="2.5")
    words = ["--gpu", gpu, *(["--driver", driver] if driver else [])]
    result = opdock("inspect", path, *words, "--json")
    package = only(result.json)
    assert (package["name"], package["version"], package["kind"]) == ("foo", "2.5", "wheel")
    assert package["cuda_archs"] == ["sm_80", "sm_90"]
    arch = "sm_90" if gpu == "9.0" else gpu
    assert package["gpus"] == [{"arch": arch, "code": code, "image": image}]
    assert result.status == (0 if cause is None else 1)
    assert (package["cause"] or {}).get("code") == cause
    text = opdock("inspect", path, *words)
    assert text.status == result.status
    if cause:
        assert cause in text.out and "foo/x.so" in text.out and "-> " in text.out


def test_each_gpu_that_is_described_counts(opdock, tmp_path, made):
    path = wheel(tmp_path, {"foo/x.so": made(80)})
    good = opdock("inspect", path, "--gpu", "sm_80", "--gpu", "sm_86", "--driver", "570")
    assert good.status == 0 and "sm_86" in good.out
    assert "cuda:" not in good.out  # a GPU that is only described is not visible to programs
    both = opdock("inspect", path, "--gpu", "sm_80", "--gpu", "sm_90", "--driver", "570")
    assert both.status == 1 and "native sm_80" in both.out and "none" in both.out


def test_the_worst_package_comes_first(opdock, tmp_path, made):
    wheel(tmp_path, {"a/x.so": made(90)}, name="aaa")
    wheel(tmp_path, {"b/x.so": made()}, name="bbb")
    wheel(tmp_path, {"c/x.so": made(70)}, name="ccc")
    report = opdock("inspect", tmp_path, "--gpu", "sm_90", "--driver", "570", "--json").json
    # "made" is the folder of the library itself.
    assert [package["name"] for package in report["packages"]][0] == "ccc"
    assert report["summary"]["rejected"] == 2  # ccc, and the library in that folder
    code = {package["name"]: package["gpus"][0]["code"] for package in report["packages"]}
    assert code["aaa"] == "native" and code["bbb"] == "no-code" and code["ccc"] == "none"


def test_of_several_files_the_worst_decides(opdock, tmp_path, made):
    path = wheel(tmp_path, {"foo/a.so": made(90), "foo/b.so": made(80), "foo/c.so": made()})
    result = opdock("inspect", path, "--gpu", "sm_90", "--driver", "570")
    assert result.status == 1 and "1 of 3 files, first foo/b.so" in result.out


def test_what_is_for_another_vendor_is_no_cause_beside_what_fits(opdock, tmp_path, made):
    """Some packages contain one library for CUDA and one for ROCm."""
    path = wheel(tmp_path, {"foo/cuda.so": made(80), "foo/other.so": made()})
    alone = opdock("inspect", path, "--gpu", "gfx90a", "--rocm", "6.2", "--json")
    cause = only(alone.json)["cause"]
    assert alone.status == 1 and cause["code"] == "no-images" and "sm_80" in cause["found"]
    plugin = PLUGINS / "bias_gelu_hip.so"
    if not plugin.exists():
        pytest.skip("the plugins were built without hipcc")
    plugin = plugin.read_bytes()
    path = wheel(tmp_path, {"foo/cuda.so": made(80), "foo/hip.so": plugin})
    both = opdock("inspect", path, "--gpu", "sm_80", "--driver", "570", "--json")
    assert both.status == 0, only(both.json)["cause"]
    text = opdock("inspect", path, "--gpu", "sm_90", "--driver", "570").out
    assert "1 of 2 files, first foo/cuda.so" in text
    files = {file["file"]: file for file in only(both.json)["files"]}
    assert files["foo/hip.so"]["verdict"] == "rejected" and not files["foo/hip.so"]["counts"]


def test_gpu_code_without_a_gpu_is_no_reason(opdock, tmp_path, made):
    path = wheel(tmp_path, {"foo/x.so": made(80)})
    report = opdock("inspect", path, "--glibc", "2.99", "--json").json
    assert only(report)["verdict"] == "usable" and report["machine"]["gpus"] == []
    assert codes(only(report)["files"][0]["reasons"]) == ["gpu-unjudged", "no-plugin"]


def test_images_of_a_plugin_are_judged_for_each_of_its_gpus(opdock):
    archs = opdock("inspect", PLUGINS / "softmax.so", "--json").json["cuda_archs"]
    cubins = [arch for arch in archs if re.fullmatch(r"sm_\d+", arch)]
    if not cubins:
        pytest.skip("the plugins were built without CUDA images")
    words = [word for arch in cubins for word in ("--gpu", arch)]
    report = opdock("inspect", PLUGINS, *words, "--cuda", "99.0", "--json").json
    files = {file["file"]: file for file in only(report)["files"]}
    found = [(cell["code"], cell["image"]) for cell in files["softmax.so"]["gpus"]]
    assert found == [("native", arch) for arch in cubins]


def test_source_that_a_plugin_carries_counts_for_a_gpu_without_image(opdock):
    """The source is compiled when the GPU first needs it."""
    images = opdock("inspect", PLUGINS / "softmax.so", "--json").json["images"]
    if not any(image["kind"] == "source" for image in images):
        pytest.skip("the plugins were built without device source")
    words = ["--gpu", "sm_37", "--cuda", "99.0"]  # no image is for so old a GPU
    report = opdock("inspect", PLUGINS / "softmax.so", *words, "--json").json
    least = "arch-below-least" in codes(report["reasons"])
    assert report["verdict"] == ("rejected" if least else "usable")
    assert least or "compiled-later" in codes(report["reasons"])
    assert "arch-mismatch" not in codes(report["reasons"])
    assert [one["device"] for one in report["devices"]].count("sm_37") == 1


# ---- libraries and processors


def test_a_newer_c_library_than_the_machines(opdock, tmp_path):
    source = "#include <string.h>\nvoid *copy(void *a, void *b) { return memcpy(a, b, 99999); }"
    content = library(tmp_path / "m" / "x.so", source=source, flags=["-fno-builtin"])
    path = wheel(tmp_path, {"foo/x.so": content})
    assert opdock("inspect", path).status == 0
    result = opdock("inspect", path, "--glibc", "2.3", "--json")
    cause = only(result.json)["cause"]
    assert result.status == 1 and cause["code"] == "glibc-version"
    assert cause["file"] == "foo/x.so" and cause["advice"]
    assert opdock("inspect", path, "--glibc", "2.99").status == 0


def test_another_processor_is_another_machine(opdock, tmp_path, made):
    other = "aarch64" if os.uname().machine == "x86_64" else "x86_64"
    path = wheel(tmp_path, {"foo/x.so": made()})
    result = opdock("inspect", path, "--arch", other, "--json")
    assert result.status == 1 and only(result.json)["cause"]["code"] == "elf-machine"
    assert result.json["machine"]["cpu_arch"] == other


def test_a_library_beside_it_in_the_wheel_is_found(opdock, tmp_path):
    folder = tmp_path / "m"
    first = library(folder / "libinner.so", flags=["-Wl,-soname,libinner.so"])
    source = "int found(void); int outer(void) { return found(); }"
    flags = [f"-L{folder}", "-linner", "-Wl,-rpath,$ORIGIN/../foo.libs"]
    second = library(tmp_path / "n" / "outer.so", source=source, flags=flags)
    alone = wheel(tmp_path / "alone-1-py3-none-any.whl", {"foo/outer.so": second})
    result = opdock("inspect", alone)
    assert result.status == 1 and "library-missing" in result.out and "libinner.so" in result.out
    files = {"foo/outer.so": second, "foo.libs/libinner.so": first}
    both = wheel(tmp_path / "both-1-py3-none-any.whl", files)
    assert opdock("inspect", both).status == 0, opdock("inspect", both).out


def test_a_missing_library_is_the_last_of_the_causes(opdock, tmp_path):
    """Another package may provide the library."""
    folder = tmp_path / "m"
    library(folder / "libgone.so", flags=["-Wl,-soname,libgone.so"])
    source = "int found(void); int outer(void) { return found(); }"
    made = library(tmp_path / "x.so", archs=[80], source=source, flags=[f"-L{folder}", "-lgone"])
    path = wheel(tmp_path, {"foo/a.so": made})
    for gpu, code in (("sm_80", "library-missing"), ("sm_90", "arch-mismatch")):
        result = opdock("inspect", path, "--gpu", gpu, "--driver", "570", "--json")
        assert result.status == 1 and only(result.json)["cause"]["code"] == code


def test_a_long_runpath_is_no_defect(opdock, tmp_path):
    """Bazel writes one entry for each library that it knows."""
    runpath = ":".join(f"$ORIGIN/{i:04}/lib" for i in range(500))
    made = library(tmp_path / "m" / "x.so", flags=[f"-Wl,-rpath,{runpath}"])
    assert opdock("inspect", wheel(tmp_path, {"foo/x.so": made})).status == 0


# ---- which files are found


def test_a_folder_is_looked_into(opdock, tmp_path, made):
    content = made()
    root = tmp_path / "tree"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "er" / "libx.so.1").write_bytes(content)
    (root / "deep" / "libx.so").symlink_to("er/libx.so.1")
    (root / "deep" / "loop").symlink_to(root)
    (root / "tool").write_bytes(content)
    (root / "readme").write_text("no program")
    (root / "x.dll").write_bytes(b"MZ")
    report = opdock("inspect", root, "--json").json
    names = {file["file"] for file in only(report)["files"]}
    assert names == {"deep/er/libx.so.1", "tool"}
    assert only(report)["kind"] == "folder" and only(report)["name"] == "tree"
    assert [Path(one["path"]).name for one in report["skipped"]] == ["x.dll"]
    assert report["summary"]["skipped"] == 1


def test_programs_are_judged_as_programs(opdock, tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "program").write_bytes(Path("/bin/ls").read_bytes())
    result = opdock("inspect", tmp_path / "bin", "--json")
    assert result.status == 0, result.json["packages"]
    assert only(result.json)["files"][0]["is_shared_object"] is False


def test_a_virtual_environment_has_its_packages(opdock, tmp_path, made):
    root = tmp_path / "env"
    venv.create(root, with_pip=False)
    site = next(root.glob("lib/python*/site-packages"))
    install(site, "foo", {"foo/x.so": made(), "foo/y.so": made()}, version="3")
    install(site, "bar", {"_bar.so": made()}, record=False)
    install(site, "pure", {"pure/__init__.py": b""})
    (site / "stray").mkdir()
    (site / "stray" / "z.so").write_bytes(made())
    report = opdock("inspect", root, "--json").json
    found = {(p["name"], p["version"], p["kind"], len(p["files"])) for p in report["packages"]}
    assert found == {
        ("foo", "3", "package", 2),
        ("bar", "1.0", "package", 1),
        ("stray", None, "folder", 1),
    }
    assert report["summary"]["pure"] == 1 and report["summary"]["files"] == 4
    for words in (["--environment"], ["--package", "Foo", "--package", "pure"]):
        result = opdock("inspect", *words, "--json", VIRTUAL_ENV=str(root))
        names = {package["name"] for package in result.json["packages"]}
        assert names == ({"foo", "bar", "stray"} if len(words) == 1 else {"foo", "pure"})
        assert result.status == 0
    missing = opdock("inspect", "--package", "fooo", VIRTUAL_ENV=str(root))
    assert missing.status == 1 and "did you mean foo?" in missing.err


def test_without_a_python_there_are_no_packages(opdock, tmp_path):
    result = opdock("inspect", "--environment", PATH=str(tmp_path))
    assert result.status == 1 and "python3" in result.err and result.out == ""


def test_one_member_of_a_wheel_is_shown_as_a_file(opdock, tmp_path, made):
    path = wheel(tmp_path, {"foo/x.so": made(80)})
    report = opdock("inspect", f"{path}/foo/x.so", "--json").json
    assert report["cuda_archs"] == ["sm_80"] and report["images"][0]["toolkit"] == "12.6"
    assert "undefined" in report
    result = opdock("inspect", f"{path}/foo/none.so")
    assert result.status == 2 and "none.so" in result.err


def test_one_file_for_another_machine_is_shown_in_full(opdock, tmp_path, made):
    made(80)
    result = opdock("inspect", tmp_path / "made" / "x.so", "--gpu", "sm_70", "--driver", "570")
    assert result.status == 1 and "arch-mismatch" in result.out
    assert re.search("^CUDA +sm_80$", result.out, re.M)


# ---- invalid arguments


@pytest.mark.parametrize(
    "words, told",
    [
        (["--gpu", "H100"], '--gpu: found "H100", wanted an architecture such as sm_100'),
        (["--gpu", "compute_90"], "name the GPU's own: sm_90"),
        (["--driver", "999"], "wanted a release of NVIDIA's driver"),
        (["--driver", "570", "--cuda", "12.8"], "--driver"),
        (["--glibc", "new"], "--glibc"),
        (["--arch", "riscv64"], "--arch"),
        (["--cpu", "x86-64-v9"], "--cpu"),
        (["--diff"], "two files"),
        (["--html", "/nowhere/at/all/x.html"], "--html"),
        (["/nowhere/at/all"], "/nowhere/at/all"),
        (["/nowhere/x.whl/y.so"], "/nowhere/x.whl"),
    ],
)
def test_bad_usage_says_what_was_wanted(opdock, words, told):
    result = opdock("inspect", CASES, *words)
    assert result.status == 2 and result.out == "", result.out
    assert told in result.err and result.err.endswith("see `opdock inspect --help`\n")


# ---- files from untrusted sources


def test_a_damaged_wheel_is_one_reason(opdock, tmp_path, made):
    path = wheel(tmp_path, {"foo/x.so": made()})
    whole = path.read_bytes()
    for size in (0, 4, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        result = opdock("inspect", path, "--json")
        assert result.status == 1 and codes(only(result.json)["reasons"]) == ["wheel-damaged"]
    path.write_bytes(b"no zip at all")
    assert "download it again" in opdock("inspect", path).out


@pytest.mark.parametrize("name", ["../x.so", "/etc/x.so", "foo/../../x.so", "foo\\x.so"])
def test_members_that_lead_out_of_the_wheel_are_not_read(opdock, tmp_path, made, name):
    (tmp_path / "x.so").write_bytes(made())
    path = wheel(tmp_path, {name: b"x", "foo/ok.so": made()})
    result = opdock("inspect", path, "--json")
    package = only(result.json)
    assert result.status == 1 and codes(package["reasons"]) == ["wheel-member"]
    assert [file["file"] for file in package["files"]] == ["foo/ok.so"]
    assert name in result.json["skipped"][0]["path"]


def test_links_in_wheels_are_not_followed(opdock, tmp_path):
    path = tmp_path / "l-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        member = zipfile.ZipInfo("foo/x.so")
        member.create_system = 3
        member.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(member, "/etc/passwd")
    result = opdock("inspect", path, "--json")
    assert result.status == 1 and only(result.json)["files"] == []
    assert "symbolic link" in only(result.json)["cause"]["text"]


def test_a_bomb_is_not_unpacked(opdock, tmp_path):
    path = tmp_path / "b-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("foo/x.so", bytes(128 << 20))
    assert path.stat().st_size < 200_000
    result = opdock("inspect", path, "--json")
    file = only(result.json)["files"][0]
    assert result.status == 1 and codes(file["reasons"]) == ["wheel-member"]
    assert "above the limit" in file["reasons"][0]["text"]


def test_a_size_that_lies_is_found_out(opdock, tmp_path, made):
    path = wheel(tmp_path, {"foo/x.so": made()})
    content = bytearray(path.read_bytes())
    size = len(made())
    at = content.rindex(b"PK\1\2", 0, content.index(b"foo/x.so", content.index(b"PK\1\2")))
    assert struct.unpack_from("<I", content, at + 24)[0] == size
    for lie in (size - 1, size + 1):
        struct.pack_into("<I", content, at + 24, lie)
        path.write_bytes(content)
        file = only(opdock("inspect", path, "--json").json)["files"][0]
        assert codes(file["reasons"]) == ["wheel-member"], lie


def test_an_unknown_method_is_named_for_its_file(opdock, tmp_path, made):
    path = tmp_path / "m-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("foo/x.so", made(), compress_type=zipfile.ZIP_LZMA)
        archive.writestr("foo/y.so", made())
    result = opdock("inspect", path, "--json")
    files = {file["file"]: file for file in only(result.json)["files"]}
    assert "compression method 14" in files["foo/x.so"]["reasons"][0]["text"]
    assert files["foo/y.so"]["verdict"] == "usable"


def test_a_wheel_for_windows_says_so(opdock, tmp_path):
    path = wheel(tmp_path, {"foo/x.pyd": b"MZ", "foo/y.dll": b"MZ"})
    result = opdock("inspect", path, "--json")
    assert result.status == 1 and only(result.json)["cause"]["code"] == "package-foreign"
    assert result.json["summary"]["skipped"] == 2


def test_a_pure_wheel_is_usable(opdock, tmp_path):
    result = opdock("inspect", wheel(tmp_path, {"foo/__init__.py": b""}), "--json")
    assert result.status == 0 and only(result.json)["files"] == []


# ---- the page


class Page(html.parser.HTMLParser):
    """Parses a page into tags with their attributes, and text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_has_the_matrix_and_nothing_from_elsewhere(opdock, tmp_path, made):
    wheel(tmp_path, {"foo/x.so": made(80)}, name="<b>evil&\u202e")
    (tmp_path / "made" / "x.so").unlink()
    target = tmp_path / "page.html"
    target.write_text("")  # as mktemp leaves it
    words = ["--gpu", "sm_80", "--gpu", "sm_90", "--driver", "570"]
    result = opdock("inspect", tmp_path, *words, "--html", target)
    assert result.status == 1
    text = target.read_text()
    page = Page(text)
    assert page.open == [] and "<b>evil&\\u202e" in page.text and "<b>evil" not in text
    assert "\u202e" not in text + result.out and "<b>evil&\\u202e" in result.out
    assert "native sm_80" in page.text and "arch-mismatch" in page.text
    assert {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "a"} == set()
    for _, attributes in page.tags:
        assert not {"src", "href", "onclick", "style"} & attributes.keys()
    assert "prefers-color-scheme" in text and "http://" not in text and "url(" not in text
    assert sorted(p.name for p in tmp_path.iterdir() if "page" in p.name) == ["page.html"]
    target.write_text(text + "<!-- the run before -->")
    assert opdock("inspect", tmp_path, *words, "--html", target).status == 1
    assert target.read_text().endswith("</html>\n")


def test_a_page_replaces_nothing_but_a_page(opdock, tmp_path, made):
    """A file that was meant as a further file to inspect is not overwritten, nor is any other
    file."""
    library = tmp_path / "made" / "x.so"
    made()
    path = wheel(tmp_path, {"foo/x.so": made()})
    text = tmp_path / "notes.html"
    text.write_text("<!DOCTYPE html>\n<title>notes</title>\n")
    (tmp_path / "link.html").symlink_to(text)
    os.mkfifo(tmp_path / "fifo")
    kept = {file: file.read_bytes() for file in (library, path, text)}
    for target in (*kept, tmp_path / "link.html", tmp_path / "fifo", tmp_path):
        result = opdock("inspect", "--html", target, library)
        assert result.status == 2 and result.out == "", target
        assert f'"{target}", which is no page that opdock wrote' in result.err
    assert {file: file.read_bytes() for file in kept} == kept
    assert (tmp_path / "fifo").is_fifo()


def test_a_page_that_cannot_be_written_leaves_nothing(opdock, tmp_path, made):
    path = wheel(tmp_path, {"foo/x.so": made()})
    (tmp_path / "page").mkdir()
    result = opdock("inspect", path, "--html", tmp_path / "page")
    assert result.status == 2 and "page" in result.err
    result = opdock("inspect", path, "--html", "/proc/self/page")
    assert result.status == 1 and "/proc/self/page" in result.err
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("page")] == ["page"]


# ---- two builds of one library


def test_diff_says_what_changed(opdock, tmp_path):
    before = "int stays(void) { return 1; } int goes(void) { return 2; }"
    after = (
        "double cos(double); double comes(double x) { return cos(x); } int stays(void) {return 1;}"
    )
    library(tmp_path / "a" / "x.so", archs=[80, 90], toolkit=126, source=before)
    flags = ["-lm", "-Wl,-soname,libx.so.2"]
    library(tmp_path / "b" / "x.so", archs=[90, 100], toolkit=128, source=after, flags=flags)
    result = opdock("inspect", "--diff", tmp_path / "a/x.so", tmp_path / "b/x.so", "--json")
    report = result.json
    assert result.status == 1 and report["equal"] is False
    assert report["archs"] == {"added": ["sm_100"], "removed": ["sm_80"]}
    assert report["toolkits"] == {"added": ["12.8"], "removed": ["12.6"]}
    assert report["exports"] == {"added": ["comes"], "removed": ["goes"]}
    assert report["undefined"]["added"] == ["cos"]
    assert any(name.startswith("libm.so") for name in report["needed"]["added"])
    assert report["traits"]["added"] == ["soname libx.so.2"]
    assert report["a"]["image_bytes"] == report["b"]["image_bytes"] == 2 * 128
    text = opdock("inspect", "--diff", tmp_path / "a/x.so", tmp_path / "b/x.so").out
    assert re.search(r"^- architecture +sm_80$", text, re.M)
    assert re.search(r"^\+ exports +comes$", text, re.M)


def test_diff_of_equal_files_is_good(opdock, tmp_path, made):
    path = wheel(tmp_path, {"foo/x.so": made(80)})
    result = opdock("inspect", "--diff", tmp_path / "made" / "x.so", f"{path}/foo/x.so")
    assert result.status == 0 and "nothing else differs" in result.out


def test_the_test_makes_what_nvcc_would(opdock, tmp_path, made):
    """Two containers in one file are two, each with its images."""
    made(80)
    assert len(fat_binary([80, 90])) == 16 + 2 * (64 + 128)
    images = opdock("inspect", tmp_path / "made" / "x.so", "--json").json["images"]
    assert [(image["arch"], image["kind"]) for image in images] == [("sm_80", "cubin")]


# ---- the documentation


def test_every_member_is_documented(opdock, tmp_path, made):
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "inspect.md"
    described = set(re.findall(r"""[`."]([a-z_]+)[`"]""", page.read_text()))
    path = wheel(tmp_path, {"foo/x.so": made(80), "../y.so": b""})
    report = opdock("inspect", path, "--gpu", "sm_70", "--driver", "570", "--json").json
    package = report["packages"][0]
    found = {*report, *report["machine"], *report["summary"], *package, *package["gpus"][0]}
    found |= {*report["skipped"][0], "file", "counts"}
    diff = ("inspect", "--diff", tmp_path / "made/x.so", f"{path}/foo/x.so", "--json")
    difference = opdock(*diff).json
    found |= {*difference, *difference["a"], *difference["archs"]}
    assert found - described == set()
