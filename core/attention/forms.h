// A thread's record of the forms of attention on a device: the time that own kernels have lost by
// each, and the library's plans. Both are bounded: those that were not used for the longest time
// go.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>
#include <memory>
#include <string>
#include <unordered_map>

#include "attention/form.h"
#include "attention/plan.h"

namespace opdock::attention {

class Forms {
 public:
  struct Entry {
    Form form;
    double price = 0;            // the seconds that a call of own kernels loses
    double lost = 0;             // by the calls so far
    std::string why;             // the library does not serve it; empty: it may
    std::unique_ptr<Plan> plan;  // NULL: not made yet
    bool is_promised = false;    // the library computes it, or the call fails
    bool is_captured = false;    // a graph may use the plan's kernels: it is never destroyed
  };

  // A server of prompts sees some thousand lengths; a form without a plan takes half a kilobyte.
  static constexpr size_t kMaxForms = 4096;
  // How much of a GPU's memory a plan takes is the library's secret: a module of its kernels.
  static constexpr size_t kMaxPlans = 256;

  // Returns a form's entry, which becomes the last one used; NULL if there is none.
  Entry* find(const Form& form);
  // Adds a form that find() does not know. May forget a form without a plan.
  Entry* add(const Form& form);
  // Returns whether another plan is one too many.
  bool is_full() const { return plans_ >= kMaxPlans; }
  // Returns the form whose plan was not used for the longest time and may be destroyed, or NULL.
  Entry* oldest_plan();
  void set_plan(Entry* entry, std::unique_ptr<Plan> plan);
  // Destroys the plan, which nothing uses any more. The form has to earn it again.
  void forget_plan(Entry* entry);
  size_t plans() const { return plans_; }
  size_t size() const { return by_form_.size(); }

 private:
  std::list<Entry> entries_;  // the last one used comes first
  std::unordered_map<Form, std::list<Entry>::iterator, FormHash> by_form_;
  size_t plans_ = 0;
};

}  // namespace opdock::attention
