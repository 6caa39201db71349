// SPDX-License-Identifier: Apache-2.0
#include "attention/decisions.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <utility>

#include "base/mutex.h"

namespace opdock::attention {
namespace {

struct Record {
  Mutex mutex;
  std::deque<Decision> latest;  // first
};
// Never destroyed: calls may still run while static objects are being destroyed.
Record& record = *new Record;

}  // namespace

std::string describe_form(const Form& form) {
  const auto times = [](int64_t a, int64_t b) {
    return std::to_string(a) + "x" + std::to_string(b);
  };
  std::string text = form.is_half != 0 ? "float16 " : "bfloat16 ";
  text += std::to_string(form.batch) + "x" + times(form.heads, form.queries) + " over " +
          times(form.kv_heads, form.keys) + ", heads of " + std::to_string(form.size);
  if (form.value_size != form.size) text += " and " + std::to_string(form.value_size);
  if (form.has(OPDOCK_ATTENTION_BACKWARD)) text += ", backward";
  if (form.has(OPDOCK_ATTENTION_CAUSAL)) text += ", causal";
  if (form.has(OPDOCK_ATTENTION_BOTTOM_RIGHT)) text += " to the last key";
  if (form.window != 0) text += ", window of " + std::to_string(form.window);
  if (form.has_lengths()) text += ", lengths";
  if (form.bias != kNoBias) text += ", bias";
  const std::pair<uint32_t, const char*> others[] = {
      {OPDOCK_ATTENTION_BIAS_GRADIENT, " and its gradient"},
      {OPDOCK_ATTENTION_SLOPES, ", slopes"},
      {OPDOCK_ATTENTION_DROPOUT, ", dropout"},
      {OPDOCK_ATTENTION_RAGGED, ", ragged"},
      {OPDOCK_ATTENTION_PAGED, ", keys in blocks"},
      {OPDOCK_ATTENTION_DETERMINISTIC, ", equal bits"}};
  for (const auto& [flag, words] : others)
    if (form.has(flag)) text += words;
  return text;
}

void record_decision(Decision decision) {
  const std::lock_guard lock(record.mutex);
  std::deque<Decision>& all = record.latest;
  std::erase_if(all, [&](const Decision& each) {
    return each.op == decision.op && each.device == decision.device && each.form == decision.form;
  });
  all.push_front(std::move(decision));
  if (all.size() > kMaxDecisions) all.pop_back();
}

std::vector<Decision> decisions_about(std::string_view op) {
  const std::lock_guard lock(record.mutex);
  std::vector<Decision> found;
  std::copy_if(record.latest.begin(), record.latest.end(), std::back_inserter(found),
               [&](const Decision& each) { return each.op == op; });
  return found;
}

}  // namespace opdock::attention
