// opdock run: runs one op on small inputs.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "commands.h"
#include "fmt/format.h"
#include "gpu_memory.h"
#include "report_text.h"
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
              fmt::format("the op is {}", schema), "arguments", ""};
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

// Holds the values that an invocation returns, and frees the host's memory behind them.
class Returned {
 public:
  explicit Returned(uint32_t count) : values_(count) {}
  ~Returned() {
    for (opdock_value& value : values_) opdock_value_free(&value);
  }
  Returned(const Returned&) = delete;
  Returned& operator=(const Returned&) = delete;
  std::vector<opdock_value>& values() { return values_; }

 private:
  std::vector<opdock_value> values_;
};

// Shows a returned value as text and as JSON.
void show(const opdock_value& value, std::string* text, Report* json) {
  switch (value.tag) {
    case OPDOCK_TAG_TENSOR: {
      const std::unique_ptr<Array> array = ValueMaker::copy(*value.as.tensor);
      *text += to_text(*array);
      *json = array_json(*array);
      return;
    }
    case OPDOCK_TAG_LIST:
      *json = Report::array();
      for (uint64_t i = 0; i < value.as.list->count; ++i) {
        json->emplace_back();
        show(value.as.list->data[i], text, &json->back());
      }
      return;
    case OPDOCK_TAG_INT:
      *json = value.as.i64;
      break;
    case OPDOCK_TAG_FLOAT:
      *json = std::isfinite(value.as.f64) ? Report(value.as.f64)
                                          : Report(fmt::format("{}", value.as.f64));
      break;
    case OPDOCK_TAG_BOOL:
      *json = value.as.i64 != 0;
      break;
    case OPDOCK_TAG_OBJECT:
      *json = fmt::format("object of type {}", value.as.object->type_id);
      break;
    default:
      *json = nullptr;
  }
  *text += (json->is_string() ? printable(json->get<std::string>()) : json->dump()) + "\n";
}

}  // namespace

int run_command(const RunOptions& options) {
  const opdock_device device = device_of(options);
  const Runtime runtime(options.plugin_path);
  opdock_function* function = nullptr;
  check([&](char* error, uint32_t size) {
    return opdock_get_function(runtime.get(), options.op.c_str(), &function, error, size);
  });
  const opdock_function_info& info = *opdock_describe(function);
  const char* const schema = info.schema;
  const Parameters parameters{info.params, info.num_params};
  gpu_open(device);

  ValueMaker maker(device, options.seed);
  std::vector<std::string> names;
  std::vector<opdock_value> named;
  std::vector<std::string> arguments = options.arguments;
  arguments.insert(arguments.end(), options.words.begin(), options.words.end());
  for (const std::string& argument : arguments) {
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) {
      throw Usage{fmt::format("\"{}\"", argument), "NAME=VALUE",
                  fmt::format("the op is {}", schema), "arguments", ""};
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
  Returned returned(info.num_results);
  check([&](char* error, uint32_t size) {
    return opdock_invoke(function, nullptr, bound.data(), parameters.count,
                         returned.values().data(), info.num_results, error, size);
  });

  Report json;
  json["schema"] = schema;
  json["results"] = Report::array();
  json["written"] = Report::object();
  std::string text;
  for (uint32_t i = 0; i < info.num_results; ++i) {
    if (info.results[i].param >= 0) continue;  // shown below as a written parameter
    Report one;
    show(returned.values()[i], &text, &one);
    json["results"].push_back(std::move(one));
  }
  for (uint32_t i = 0; i < parameters.count; ++i) {
    const opdock_param& param = parameters.data[i];
    if ((param.flags & OPDOCK_PARAM_WRITTEN) == 0 || bound[i].tag != OPDOCK_TAG_TENSOR) continue;
    const Array& array = maker.read_back(bound[i]);
    json["written"][param.name] = array_json(array);
    text += fmt::format("{} = {}", param.name, to_text(array));
  }
  if (options.json) {
    print_json(json);
  } else {
    print(text);
  }
  return kGood;
}

}  // namespace opdock::cli
