// SPDX-License-Identifier: Apache-2.0
#include "finding.h"

#include <cstdio>
#include <mutex>
#include <vector>

#include "allocations.h"
#include "library.h"
#include "operations.h"

namespace softgpu {
namespace {

thread_local Fault fault_of_thread = Fault::kNone;

std::mutex finding_mutex;
std::vector<std::string>& texts() {
  static auto* const all = new std::vector<std::string>;
  return *all;
}

PendingWrites& pending() {
  static auto* const ask = new PendingWrites;
  return *ask;
}

std::string triple(uint64_t linear, const uint32_t size[3]) {
  return "(" + std::to_string(linear % size[0]) + ", " +
         std::to_string(linear / size[0] % size[1]) + ", " +
         std::to_string(linear / size[0] / size[1]) + ")";
}

std::string count(uint64_t bytes) {
  return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
}

}  // namespace

Fault fault_of(const Finding& finding) {
  switch (finding.kind) {
    case FindingKind::kNone:
      return Fault::kNone;
    case FindingKind::kOutside:
    case FindingKind::kOtherDevice:
      return Fault::kAddress;
    case FindingKind::kMisaligned:
      return Fault::kMisaligned;
    default:
      return Fault::kOther;
  }
}

std::string describe_stamp(Stamp stamp, uint32_t site, const OperationRecord* here) {
  OperationRecord* const record = operation_of_run(run_of(stamp));
  if (!record) return "nobody";
  std::string text;
  if (record->library) {
    text = "thread " + triple(thread_of(stamp), record->threads) + " of block " +
           triple(record->block_of(run_of(stamp)), record->grid) + ", " +
           source_lines(*record->library, site).place;
    if (record == here) return text;
    text += ", ";
  }
  return text + record->what;
}

std::string describe_memory(uintptr_t address, uint64_t bytes) {
  char number[32];
  std::snprintf(number, sizeof(number), "%#lx", static_cast<unsigned long>(address));
  std::string text = number;
  if (!arena().contains(address)) {
    if (address < 4096) return text + " is next to null";
    return text + " is not device memory: the host's, or another thread's local memory";
  }
  const Nearest nearest = nearest_allocation(address);
  if (!nearest.found) return text + " is in no allocation: there is none";
  const Allocation& near = nearest.allocation;
  const std::string whose = (nearest.released ? "a released allocation of " : "an allocation of ") +
                            count(near.bytes) + " on device " + std::to_string(near.device);
  if (address < near.begin) return text + " is " + count(near.begin - address) + " before " + whose;
  const uint64_t at = address - near.begin;
  if (at >= near.bytes)
    return text + " is " + count(at - near.bytes) + " after the end of " + whose;
  text += " is byte " + std::to_string(at) + " of " + whose;
  if (at + bytes > near.bytes)
    text += ", with " + count(at + bytes - near.bytes) + " after its end";
  return text;
}

void ask_pending_writes(PendingWrites ask) {
  const std::lock_guard<std::mutex> lock(finding_mutex);
  pending() = std::move(ask);
}

std::vector<std::string> pending_writes(const Operation& reader, uintptr_t address) {
  PendingWrites ask;
  {
    const std::lock_guard<std::mutex> lock(finding_mutex);
    ask = pending();
  }
  return ask ? ask(reader, address) : std::vector<std::string>();
}

void report(const std::string& text, Fault fault) {
  fault_of_thread = fault;
  std::fputs(text.c_str(), stderr);
  const std::lock_guard<std::mutex> lock(finding_mutex);
  texts().push_back(text);
}

Fault last_fault() {
  return fault_of_thread;
}

std::vector<std::string> findings() {
  const std::lock_guard<std::mutex> lock(finding_mutex);
  return texts();
}

void clear_findings() {
  const std::lock_guard<std::mutex> lock(finding_mutex);
  texts().clear();
}

}  // namespace softgpu
