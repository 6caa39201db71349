// SPDX-License-Identifier: Apache-2.0
#include "examples.h"

#include <gtest/gtest.h>

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

Examples::~Examples() {
  for (opdock_object* object : objects_) object->release(object);
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

opdock_value Examples::list(std::vector<opdock_value> items) {
  const std::vector<opdock_value>& kept = items_.emplace_back(std::move(items));
  return list_value(&lists_.emplace_back(opdock_list{kept.data(), kept.size()}));
}

opdock_value Examples::text(std::string text) {
  const std::string& kept = texts_.emplace_back(std::move(text));
  return text_value(&text_values_.emplace_back(opdock_string{kept.data(), kept.size()}));
}

opdock_value Examples::result(const std::string& plugin, const std::string& op,
                              const std::vector<opdock_value>& args) {
  const Result result = Op(plugin, op).call(args, {});
  EXPECT_EQ(result.status, OPDOCK_OK) << result.text;
  if (result.value.tag == OPDOCK_TAG_OBJECT) objects_.push_back(result.value.as.object);
  return result.value;
}

ChangedTensors::ChangedTensors(const std::vector<opdock_value>& before, const Change& change)
    : args(before) {
  for (size_t i = 0; i < args.size(); ++i) {
    change_one(i, &args[i], change);
    if (args[i].tag != OPDOCK_TAG_LIST) continue;
    const opdock_list& list = *args[i].as.list;
    std::vector<opdock_value>& items = items_.emplace_back(list.data, list.data + list.count);
    for (opdock_value& item : items) change_one(i, &item, change);
    args[i] = list_value(&lists_.emplace_back(opdock_list{items.data(), items.size()}));
  }
}

void ChangedTensors::change_one(size_t param, opdock_value* value, const Change& change) {
  if (value->tag != OPDOCK_TAG_TENSOR) return;
  opdock_tensor& tensor = tensors_.emplace_back(*value->as.tensor);
  value->as.tensor = &tensor;
  change(param, &tensor, value);
}

}  // namespace opdock_test
