// SPDX-License-Identifier: Apache-2.0
#include "inspect/native_names.h"

#include <algorithm>
#include <cctype>

namespace opdock {
namespace {

// Endings of sources, texts and data, which packages consist of besides native code. For any other
// name the first bytes decide, because libraries may end in ".so.1.0.2n" and programs in ".hydra".
constexpr std::string_view kDataEndings[] = {
    "py",   "pyi", "pyc", "pyx", "pxd",  "pxi", "pyf", "ipynb", "txt",   "md",    "rst",  "h",
    "hh",   "hpp", "hxx", "inl", "inc",  "ipp", "tpp", "c",     "cc",    "cpp",   "cxx",  "cu",
    "cuh",  "f",   "f90", "hip", "cl",   "ptx", "bc",  "ll",    "td",    "proto", "json", "toml",
    "yaml", "yml", "cfg", "ini", "conf", "in",  "am",  "cmake", "pc",    "mk",    "html", "css",
    "js",   "ts",  "map", "xml", "xsd",  "svg", "png", "jpg",   "jpeg",  "gif",   "ico",  "ttf",
    "woff", "csv", "tsv", "dat", "npy",  "npz", "pkl", "mat",   "h5",    "gz",    "bz2",  "xz",
    "zip",  "whl", "tar", "a",   "o",    "lib", "mo",  "po",    "typed", "sh",    "bat",  "ps1"};

bool has_data_ending(std::string_view file_name) {
  const size_t dot = file_name.rfind('.');
  if (dot == file_name.npos) return false;
  const std::string_view ending = file_name.substr(dot + 1);
  return std::find(std::begin(kDataEndings), std::end(kDataEndings), ending) !=
         std::end(kDataEndings);
}

}  // namespace

NativeKind native_kind(std::string_view file_name) {
  if (file_name.ends_with(".so")) return NativeKind::kLibrary;
  for (size_t at = file_name.find(".so."); at != file_name.npos;
       at = file_name.find(".so.", at + 1)) {
    const std::string_view version = file_name.substr(at + 4);
    if (!version.empty() && std::isdigit(static_cast<unsigned char>(version.front())) != 0 &&
        version.find_first_not_of("0123456789.") == version.npos) {
      return NativeKind::kLibrary;
    }
  }
  for (std::string_view end : {".pyd", ".dll", ".dylib"}) {
    if (file_name.ends_with(end)) return NativeKind::kForeign;
  }
  return has_data_ending(file_name) ? NativeKind::kOther : NativeKind::kMaybe;
}

bool is_elf_magic(std::string_view first_bytes) {
  return first_bytes.starts_with("\177ELF");
}

bool is_linker_script(std::string_view first_bytes) {
  for (std::string_view begin : {"/* GNU ld", "INPUT(", "INPUT (", "GROUP(", "GROUP ("}) {
    if (first_bytes.starts_with(begin)) return true;
  }
  return false;
}

std::string_view file_name_of(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace opdock
