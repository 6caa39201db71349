// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

namespace opdock_test {

static std::vector<void (*)(Examples&)>& makers() {
  static std::vector<void (*)(Examples&)> all;
  return all;
}

ExamplesOf::ExamplesOf(void (*make)(Examples& examples)) {
  makers().push_back(make);
}

Examples::Examples() {
  for (void (*make)(Examples&) : makers()) make(*this);
}

opdock_value Examples::array(std::vector<int64_t> shape, std::vector<int64_t> strides, Type type) {
  Array& made = arrays_.emplace_back(type, std::move(shape), std::move(strides));
  made.fill(arrays_.size());
  return made.value();
}

opdock_value Examples::misaligned(std::vector<int64_t> shape) {
  Array& made = arrays_.emplace_back(Type::kFloat32, std::move(shape));
  made.tensor()->byte_offset = 2;
  return made.value();
}

Array* Examples::output(std::vector<int64_t> shape, std::vector<int64_t> strides, Type type) {
  return &arrays_.emplace_back(type, std::move(shape), std::move(strides));
}

Array* Examples::gapped(int64_t rows, int64_t length) {
  return output({rows, length}, {length + 3, 1});
}

opdock_value Examples::generator() {
  generators_.push_back({sizeof(opdock_generator), 0, 1, 0, nullptr});
  opdock_value value = {};
  value.tag = OPDOCK_TAG_GENERATOR;
  value.as.generator = &generators_.back();
  return value;
}

}  // namespace opdock_test
