// Converts backends and image kinds from and to text, and reads the note's head.
// SPDX-License-Identifier: Apache-2.0
#include "note/note.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "note/note_fields.h"
#include "opdock/plugin.h"

namespace opdock {

bool is_callable_abi(uint32_t major, uint32_t minor) {
  return major == OPDOCK_ABI_MAJOR && (OPDOCK_ABI_MAJOR != 0 || minor == OPDOCK_ABI_MINOR);
}

std::string abi_text(uint32_t major, uint32_t minor) {
  return "ABI " + std::to_string(major) + "." + std::to_string(minor);
}

std::string callable_abi_text() {
  return OPDOCK_ABI_MAJOR == 0 ? abi_text(OPDOCK_ABI_MAJOR, OPDOCK_ABI_MINOR)
                               : "ABI " + std::to_string(OPDOCK_ABI_MAJOR) + ".x";
}

static_assert(std::endian::native == std::endian::little, "notes and tables are read as they lie");

std::string_view to_text(Backend backend) {
  switch (backend) {
    case Backend::kCpu:
      return "cpu";
    case Backend::kCuda:
      return "cuda";
    case Backend::kRocm:
      return "rocm";
  }
  return "unknown";
}

std::string_view to_text(ImageKind kind) {
  switch (kind) {
    case ImageKind::kCubin:
      return "cubin";
    case ImageKind::kPtx:
      return "ptx";
    case ImageKind::kCodeObject:
      return "code-object";
    case ImageKind::kSource:
      return "source";
  }
  return "unknown";
}

std::optional<Backend> parse_backend(std::string_view text) {
  for (const Backend backend : {Backend::kCpu, Backend::kCuda, Backend::kRocm}) {
    if (text == to_text(backend)) return backend;
  }
  return std::nullopt;
}

std::optional<ImageKind> parse_image_kind(std::string_view text) {
  for (const ImageKind kind :
       {ImageKind::kCubin, ImageKind::kPtx, ImageKind::kCodeObject, ImageKind::kSource}) {
    if (text == to_text(kind)) return kind;
  }
  return std::nullopt;
}

std::optional<Note> read_note(std::span<const uint8_t> descriptor, std::vector<Reason>* reasons) {
  const auto refuse = [&](Code code, std::string found, std::string wanted) {
    reasons->push_back(make_reason(code, std::move(found), std::move(wanted)));
    return std::nullopt;
  };
  const size_t size = descriptor.size();
  if (size > kMaxNoteBytes) {
    return refuse(Code::kNoteTooLarge, "a note of " + std::to_string(size) + " bytes",
                  "at most " + std::to_string(kMaxNoteBytes));
  }
  if (size < sizeof(NoteHead)) {
    return refuse(Code::kNoteMalformed, "a note of " + std::to_string(size) + " bytes",
                  "a head of " + std::to_string(sizeof(NoteHead)) + " bytes");
  }
  Note note;
  NoteHead& head = note.head;
  std::memcpy(&head, descriptor.data(), sizeof head);
  if (head.note_version != kNoteVersion) {
    return refuse(Code::kNoteVersion, "note version " + std::to_string(head.note_version),
                  "version " + std::to_string(kNoteVersion));
  }
  if (head.head_size < sizeof(NoteHead) || head.head_size > size) {
    return refuse(
        Code::kNoteMalformed, "a head size of " + std::to_string(head.head_size),
        std::to_string(sizeof(NoteHead)) + " up to the note's size, " + std::to_string(size));
  }
  if (head.flags != 0) {  // a flag may change the meaning of the rest
    return refuse(Code::kNoteVersion, "note flags " + std::to_string(head.flags), "none set");
  }
  const size_t room = size - head.head_size;
  if (head.json_size > room) {
    return refuse(Code::kNoteMalformed, "a JSON size of " + std::to_string(head.json_size),
                  "at most the " + std::to_string(room) + " bytes behind the head");
  }
  const std::span<const uint8_t> padding = descriptor.subspan(head.head_size + head.json_size);
  if (padding.size() >= 8 ||
      std::any_of(padding.begin(), padding.end(), [](uint8_t b) { return b != 0; })) {
    return refuse(Code::kNoteMalformed,
                  std::to_string(padding.size()) + " bytes behind the JSON text",
                  "fewer than 8, all 0");
  }
  const std::string_view json(reinterpret_cast<const char*>(descriptor.data()) + head.head_size,
                              head.json_size);
  std::vector<Reason> problems;
  const bool good = read_note_json(json, &note, &problems);
  // A note of another ABI may have other members. One reason, abi-major (which core/compat adds),
  // is enough for it, and the members that could be read help to identify the plugin.
  if (good || !is_callable_abi(head.abi_major, head.abi_minor)) return note;
  reasons->insert(reasons->end(), problems.begin(), problems.end());
  return std::nullopt;
}

}  // namespace opdock
