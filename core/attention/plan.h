// The library's plans: a kernel that it has chosen for a form of attention, and where the parts of
// the workspace lie.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attention/cudnn_api.h"
#include "attention/form.h"
#include "attention/graph.h"
#include "driver/driver.h"
#include "opdock/attention.h"

namespace opdock::attention {

// Returns the name of a status, and the library's reason for it.
std::string describe_status(const cudnn::Api& api, cudnn::cudnnStatus_t status);

// The library's plan for a form, or why there is none.
class Plan {
 public:
  explicit Plan(const cudnn::Api& api) : descriptors_(api) {}

  void make(cudnn::cudnnHandle_t handle, const Form& form);
  // Writes to the workspace what the graph reads from the device's memory and the caller does not
  // have there: a row's length where only the other one is given, the seed and offset of dropout.
  Status fill_workspace(Driver* driver, const Form& form, const opdock_attention& what,
                        void* workspace, void* stream) const;
  cudnn::cudnnStatus_t enqueue(cudnn::cudnnHandle_t handle, const Form& form,
                               const opdock_attention& what, void* workspace) const;

  std::string why;  // empty: the plan can be used
  uint64_t workspace_bytes = 0;

 private:
  struct Numbers {
    float scale, minus_infinity, one, window;
    int32_t window_count, query_count, key_count;
    float kept, kept_scale;
  };

  const void* address(Uid uid, const opdock_attention& what, const Numbers& numbers,
                      void* workspace) const;
  // Takes the first kernel of the library's list that it can make ready.
  void choose(cudnn::cudnnHandle_t handle, cudnn::cudnnBackendDescriptor_t graph);

  Descriptors descriptors_;
  std::unique_ptr<Descriptors> chosen_;
  cudnn::cudnnBackendDescriptor_t plan_ = nullptr;
  std::vector<int64_t> uids_;
  int64_t library_bytes_ = 0;
  // Where they lie in the workspace.
  uint64_t row_sums_ = 0, d_q_sums_ = 0, lengths_ = 0, seed_ = 0;
};

}  // namespace opdock::attention
