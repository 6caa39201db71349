// SPDX-License-Identifier: Apache-2.0
#include "recorded_attention.h"

namespace opdock_test {
namespace {

RecordedAttention* live = nullptr;

opdock_status plan(const opdock_call*, const opdock_attention*, uint64_t* workspace_bytes) {
  ++live->planned;
  *workspace_bytes = live->plans ? live->workspace_bytes : 0;
  return live->plans ? OPDOCK_OK : OPDOCK_UNSUPPORTED;
}
opdock_status prepare(const opdock_call*) {
  return OPDOCK_OK;
}
opdock_status run(const opdock_call*, const opdock_attention* what, void*, uint64_t bytes) {
  if (!live->runs || bytes < live->workspace_bytes) return OPDOCK_UNSUPPORTED;
  live->ran.push_back(*what);
  return OPDOCK_OK;
}

constexpr opdock_attention_table kTable = {sizeof(opdock_attention_table), 0, plan, prepare, run};

}  // namespace

RecordedAttention::RecordedAttention() {
  live = this;
}
RecordedAttention::~RecordedAttention() {
  live = nullptr;
}

const opdock_attention_table* recorded_attention() {
  return live == nullptr ? nullptr : &kTable;
}

}  // namespace opdock_test
