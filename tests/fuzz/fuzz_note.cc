// Fuzzes the reader of a note's descriptor. Whatever it accepts can be written and read back.
// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <cstring>

#include "note/note.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<opdock::Reason> reasons;
  const std::optional<opdock::Note> note = opdock::read_note({data, size}, &reasons);
  if (note.has_value() != reasons.empty()) abort();
  if (!note || note->head.abi_major != 0) return 0;
  const std::string json = note_json(*note);
  opdock::NoteHead head = note->head;
  head.head_size = sizeof head;
  head.json_size = static_cast<uint32_t>(json.size());
  std::vector<uint8_t> again(sizeof head + json.size());
  std::memcpy(again.data(), &head, sizeof head);
  std::memcpy(again.data() + sizeof head, json.data(), json.size());
  if (again.size() > opdock::kMaxNoteBytes) return 0;  // escape sequences may lengthen the JSON
  const std::optional<opdock::Note> back = opdock::read_note(again, &reasons);
  if (!back || note_json(*back) != json) abort();
  return 0;
}
