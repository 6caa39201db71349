// SPDX-License-Identifier: Apache-2.0
#include "schema_text.h"

#include <cctype>

namespace opdock::python {

namespace {

// The parameter that follows "Tensor(a!)" in the schema, or -1.
int32_t param_with_alias(const std::string& params_text, const std::string& alias,
                         const opdock_param* params, uint32_t num_params) {
  const size_t at = params_text.find("Tensor(" + alias + ")");
  if (at == std::string::npos) return -1;
  size_t begin = params_text.find(')', at) + 1;
  while (begin < params_text.size() && std::isalpha(params_text[begin]) == 0 &&
         params_text[begin] != '_') {
    ++begin;
  }
  size_t end = begin;
  while (end < params_text.size() &&
         (std::isalnum(params_text[end]) != 0 || params_text[end] == '_')) {
    ++end;
  }
  const std::string name = params_text.substr(begin, end - begin);
  for (uint32_t i = 0; i < num_params; ++i) {
    if (name == params[i].name) return static_cast<int32_t>(i);
  }
  return -1;
}

}  // namespace

std::vector<int32_t> returned_params(const std::string& schema, const opdock_param* params,
                                     uint32_t num_params) {
  std::vector<int32_t> found;
  const size_t arrow = schema.rfind("->");
  if (arrow == std::string::npos) return found;
  const std::string before = schema.substr(0, arrow);
  const std::string after = schema.substr(arrow + 2);
  for (size_t at = after.find("Tensor"); at != std::string::npos;
       at = after.find("Tensor", at + 1)) {
    const size_t open = at + 6;
    if (open < after.size() && after[open] == '(') {
      const std::string alias = after.substr(open + 1, after.find(')', open) - open - 1);
      found.push_back(param_with_alias(before, alias, params, num_params));
    } else {
      found.push_back(-1);
    }
  }
  return found;
}

}  // namespace opdock::python
