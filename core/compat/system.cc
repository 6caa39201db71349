// SPDX-License-Identifier: Apache-2.0
#include "compat/system.h"

#include <algorithm>

#include "note/machine_name.h"
#include "opdock/plugin.h"

namespace opdock {
namespace {

// Returns whether a reason already explains why no note was read: a damaged file or a damaged note.
bool note_explained(const std::vector<Reason>& reasons) {
  return std::any_of(reasons.begin(), reasons.end(), [](const Reason& reason) {
    const CodeInfo& code = info(reason.code);
    if (code.stage == "note") return true;
    // kElfAbi judges a readable file; the other codes mean that the file cannot be searched for a
    // note.
    const bool readable = reason.code == Code::kElfAbi;
    return code.stage == "file" && code.severity == Severity::kReject && !readable;
  });
}

void judge_note(const Note& note, const MachineFacts& machine, std::vector<Reason>* reasons) {
  if (!is_callable_abi(note.head.abi_major, note.head.abi_minor) &&
      !has_code(*reasons, Code::kAbiMajor)) {
    reasons->push_back(make_reason(
        Code::kAbiMajor, abi_text(note.head.abi_major, note.head.abi_minor), callable_abi_text()));
  }
  if (!note.cpu_arch.empty() && note.cpu_arch != machine.cpu_arch) {
    reasons->push_back(make_reason(Code::kCpuArch, note.cpu_arch, machine.cpu_arch));
  } else if (note.cpu_level > machine.cpu_level) {
    reasons->push_back(
        make_reason(Code::kCpuLevel, "x86-64-v" + std::to_string(note.cpu_level),
                    "at most x86-64-v" + std::to_string(std::max(machine.cpu_level, 1))));
  }
}

}  // namespace

void judge_system(const FileFacts& file, const MachineFacts& machine, Role role,
                  std::vector<Reason>* reasons) {
  if (has_code(*reasons, Code::kElfClass) || has_code(*reasons, Code::kElfMachine)) return;
  const bool is_cut_off = file.machine == 0 && has_code(*reasons, Code::kElfTruncated);
  if (file.is_elf && file.machine != machine.elf_machine && !is_cut_off) {
    // On this machine no other problem of the file matters.
    std::erase_if(*reasons, [](const Reason& reason) {
      return reason.code == Code::kNoteMissing || reason.code == Code::kElfType ||
             reason.code == Code::kElfMalformed;
    });
    reasons->insert(reasons->begin(), make_reason(Code::kElfMachine, machine_name(file.machine),
                                                  machine_name(machine.elf_machine)));
    return;
  }
  if (role == Role::kPlugin && !file.note && !note_explained(*reasons)) {
    reasons->push_back(make_reason(Code::kNoteMissing,
                                   file.is_elf ? "no Opdock note" : "no ELF file",
                                   "a plugin made with opdock-pack"));
  }
  if (file.note) judge_note(*file.note, machine, reasons);
  judge_link(file, machine, role, reasons);
  if (file.note) judge_libraries(*file.note, machine, reasons);
  if (file.executable_stack && !has_code(*reasons, Code::kExecutableStack)) {
    reasons->push_back(make_reason(Code::kExecutableStack, "PT_GNU_STACK with the executable flag",
                                   "a stack that is not executable"));
  }
  if (file.unique_symbols && !has_code(*reasons, Code::kUniqueSymbols)) {
    reasons->push_back(
        make_reason(Code::kUniqueSymbols, "STB_GNU_UNIQUE symbols", "none exported"));
  }
}

}  // namespace opdock
