// Prints an assembly file with an Opdock note, for the sample plugin that the truncation test cuts.
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>

#include "note/note.h"
#include "opdock/plugin.h"

int main() {
  using namespace opdock;
  Note note;
  note.name = "sample";
  note.version = {0, 1, 0};
  note.devices = {Backend::kCpu};
  OpClaim op;
  op.schema = "sample(Tensor x) -> Tensor";
  op.devices = {"cpu"};
  note.ops = {op};
#if defined(__x86_64__)
  note.cpu_arch = "x86_64";
#else
  note.cpu_arch = "aarch64";
  note.cpu_level = 0;
#endif
  const std::string json = note_json(note);
  NoteHead head{};
  head.note_version = kNoteVersion;
  head.head_size = sizeof head;
  head.abi_major = OPDOCK_ABI_MAJOR;
  head.abi_minor = OPDOCK_ABI_MINOR;
  head.json_size = static_cast<uint32_t>(json.size());
  unsigned char bytes[sizeof head];
  std::memcpy(bytes, &head, sizeof head);
  std::printf(".section .note.opdock,\"a\",@note\n.balign 4\n.long 7, 2f - 1f, 1\n");
  std::printf(".asciz \"opdock\"\n.balign 4\n1:\n");
  for (const unsigned char byte : bytes) std::printf(".byte %u\n", byte);
  for (const char c : json) std::printf(".byte %u\n", static_cast<unsigned char>(c));
  std::printf("2:\n.balign 4\n.section .note.GNU-stack,\"\",@progbits\n");
}
