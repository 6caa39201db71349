// opdock run: one op on small inputs.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>

#include "commands.h"
#include "fmt/format.h"
#include "gpu_memory.h"
#include "usage.h"
#include "values.h"

namespace opdock::cli {
namespace {

struct Parameters {
  const opdock_param* data;
  uint32_t count;
};

const opdock_param& find_parameter(const Parameters& parameters, const std::string& name,
                                   const char* schema) {
  for (uint32_t i = 0; i < parameters.count; ++i) {
    if (name == parameters.data[i].name) return parameters.data[i];
  }
  throw Usage{fmt::format("no parameter \"{}\"", name), "one of the op's",
              fmt::format("the op is {}", schema), "--arg", ""};
}

opdock_device device_of(const RunOptions& options) {
  try {
    return parse_device_name(options.device);
  } catch (Usage& usage) {
    usage.where = "--device";
    throw;
  }
}

Report array_json(const Array& array) {
  Report json;
  json["dtype"] = dtype_name(array.tensor.dtype);
  json["shape"] = array.shape;
  json["values"] = Report::array();
  for (double value : values_of(array)) {
    // JSON has no infinities and no NaN: they are written as text.
    json["values"].push_back(std::isfinite(value) ? Report(value)
                                                  : Report(fmt::format("{}", value)));
  }
  return json;
}

// The tensors that an invocation fills in, and the host's memory behind them.
class Outputs {
 public:
  explicit Outputs(uint32_t count) : tensors_(count, nullptr) {}
  ~Outputs() {
    for (opdock_tensor* tensor : tensors_) opdock_tensor_free(tensor);
  }
  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;
  std::vector<opdock_tensor*>& tensors() { return tensors_; }

 private:
  std::vector<opdock_tensor*> tensors_;
};

}  // namespace

int run_command(const RunOptions& options) {
  const opdock_device device = device_of(options);
  const Runtime runtime(options.plugin_path);
  opdock_function* function = nullptr;
  check([&](char* error, uint32_t size) {
    return opdock_get_function(runtime.get(), options.op.c_str(), &function, error, size);
  });
  const char* const schema = opdock_function_schema(function);
  Parameters parameters{};
  parameters.data = opdock_function_params(function, &parameters.count);
  gpu_open(device);

  ValueMaker maker(device, options.seed);
  std::vector<std::string> names;
  std::vector<opdock_value> named;
  for (const std::string& argument : options.arguments) {
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) {
      throw Usage{fmt::format("\"{}\"", argument), "NAME=VALUE",
                  fmt::format("the op is {}", schema), "--arg", ""};
    }
    names.push_back(argument.substr(0, equals));
    named.push_back(maker.make(find_parameter(parameters, names.back(), schema),
                               std::string_view(argument).substr(equals + 1)));
  }
  std::vector<const char*> name_pointers;
  for (const std::string& name : names) name_pointers.push_back(name.c_str());
  std::vector<opdock_value> bound(parameters.count);
  check([&](char* error, uint32_t size) {
    return opdock_bind(function, nullptr, 0, name_pointers.data(), named.data(),
                       static_cast<uint32_t>(named.size()), bound.data(), error, size);
  });
  uint32_t fresh = 0, all = 0;
  opdock_function_results(function, &fresh, &all);
  Outputs outputs(fresh);
  check([&](char* error, uint32_t size) {
    return opdock_invoke(function, nullptr, bound.data(), parameters.count,
                         outputs.tensors().data(), fresh, error, size);
  });

  Report json;
  json["schema"] = schema;
  json["results"] = Report::array();
  json["written"] = Report::object();
  std::string text;
  for (const opdock_tensor* tensor : outputs.tensors()) {
    const std::unique_ptr<Array> array = ValueMaker::copy(*tensor);
    json["results"].push_back(array_json(*array));
    text += to_text(*array);
  }
  for (uint32_t i = 0; i < parameters.count; ++i) {
    const opdock_param& param = parameters.data[i];
    if ((param.flags & OPDOCK_PARAM_WRITTEN) == 0 || bound[i].tag != OPDOCK_TENSOR) continue;
    const Array& array = maker.read_back(bound[i]);
    json["written"][param.name] = array_json(array);
    text += fmt::format("{} = {}", param.name, to_text(array));
  }
  if (options.json) text = json.dump(2) + "\n";
  std::fwrite(text.data(), 1, text.size(), stdout);
  return kGood;
}

}  // namespace opdock::cli
