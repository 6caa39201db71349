// SPDX-License-Identifier: Apache-2.0
#include "attention/forms.h"

#include <utility>

namespace opdock::attention {

Forms::Entry* Forms::find(const Form& form) {
  const auto known = by_form_.find(form);
  if (known == by_form_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, known->second);
  return &entries_.front();
}

Forms::Entry* Forms::add(const Form& form) {
  if (size() - plans_ >= kMaxForms) {
    auto last = std::prev(entries_.end());
    while (last->plan != nullptr) --last;
    by_form_.erase(last->form);
    entries_.erase(last);
  }
  entries_.emplace_front().form = form;
  by_form_[form] = entries_.begin();
  return &entries_.front();
}

Forms::Entry* Forms::oldest_plan() {
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry)
    if (entry->plan != nullptr && !entry->is_captured) return &*entry;
  return nullptr;
}

void Forms::set_plan(Entry* entry, std::unique_ptr<Plan> plan) {
  entry->plan = std::move(plan);
  ++plans_;
}

void Forms::forget_plan(Entry* entry) {
  entry->plan.reset();
  entry->lost = 0;
  --plans_;
}

}  // namespace opdock::attention
