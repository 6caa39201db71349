// opdock show: prints what an op is, and who serves it.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/texts.h"
#include "commands.h"
#include "fmt/format.h"
#include "opdock/formula.h"
#include "report_text.h"

namespace opdock::cli {
namespace {

constexpr size_t kLabel = 12;

void print_row(const std::string& label, const std::string& text) {
  if (!text.empty()) print(paragraph(fmt::format("{:<{}}{}", label, kLabel, text), 2));
}

// Returns the words of `key` of all plugins that provide the op, each once, in the order found.
std::string all_of(const Report& candidates, const char* key) {
  std::vector<std::string> words;
  for (const Report& candidate : candidates) {
    for (const Report& word : candidate.at("op").at(key)) {
      const std::string text = printable(word.get<std::string>());
      if (std::find(words.begin(), words.end(), text) == words.end()) words.push_back(text);
    }
  }
  return join(words, ", ");
}

// Returns "softmax 0.1.0 (/usr/lib/…/softmax.so)", or what would be done.
std::string served_by(const Report& record) {
  for (const Report& step : record.at("steps")) {
    if (step.at("outcome") == "used") return text_of(step, "text");
  }
  return fmt::format("nothing; `opdock explain` says why");
}

// Prints "formula" beside the lines of the formula.
void print_formula(const std::string& formula) {
  std::string text = lines(formula, 2 + kLabel);
  text.replace(0, 2 + kLabel, fmt::format("  {:<{}}", "formula", kLabel));
  print(text);
}

std::string kernel_source(const opdock_function* function, const std::string& dtype) {
  char* text = nullptr;
  check([&](char* error, uint32_t size) {
    return opdock_formula_source(function, dtype.c_str(), &text, error, size);
  });
  std::string source = text;
  opdock_free(text);
  return source;
}

}  // namespace

int show_command(const ShowCommand& command) {
  const std::string& op = command.op;
  const Runtime runtime(command.plugin_path);
  const Report report = read_report([&](char** out, char* error, uint32_t size) {
    return opdock_explain_json(runtime.get(), op.c_str(), out, error, size);
  });
  opdock_function* function = nullptr;
  if (report.at("kind") != "op") {
    if (report.at("kind") == "plugin") {
      std::vector<std::string> ops;
      for (const Report& one : report.at("candidates").at(0).at("ops")) {
        ops.push_back(one.get<std::string>());
      }
      throw Failure{OPDOCK_NOT_FOUND, fmt::format("found a plugin named \"{}\", wanted an op; its "
                                                  "ops are {}",
                                                  op, join(ops, ", "))};
    }
    check([&](char* error, uint32_t size) {  // its error says what may have been meant
      return opdock_get_function(runtime.get(), op.c_str(), &function, error, size);
    });
  }
  const Report& candidates = report.at("candidates");
  const Report& best = candidates.at(0).at("op");
  std::string schema = best.at("schema").get<std::string>();
  std::string doc = text_of(best, "doc"), formula;
  if (opdock_get_function(runtime.get(), op.c_str(), &function, nullptr, 0) == OPDOCK_OK) {
    schema = opdock_describe(function)->schema;
    doc = opdock_function_doc(function);
    formula = opdock_function_formula(function);
  }
  std::string kernel;
  if (command.kernel) {
    check([&](char* error, uint32_t size) {
      return opdock_get_function(runtime.get(), op.c_str(), &function, error, size);
    });
    std::string dtype = command.dtype;
    if (dtype.empty() && !best.at("dtypes").empty())
      dtype = best.at("dtypes").at(0).get<std::string>();
    kernel = kernel_source(function, dtype.empty() ? "float32" : dtype);
  }
  const int status = report.at("usable").get<bool>() ? kGood : kExitUnusable;
  if (command.json) {
    const auto or_null = [](const std::string& text) {
      return text.empty() ? Report(nullptr) : Report(text);
    };
    Report shown = {{"name", op},
                    {"schema", schema},
                    {"doc", or_null(doc)},
                    {"formula", or_null(formula)},
                    {"usable", report.at("usable")},
                    {"chain", report.at("chain")},
                    {"candidates", candidates}};
    if (command.kernel) shown["kernel"] = kernel;
    print_json(shown);
    return command.kernel ? kGood : status;
  }
  if (command.kernel) {
    print(kernel);
    return kGood;
  }
  print(styled(printable(schema), Style::kBold) + "\n");
  // A formula without a doc is its own.
  if (doc != formula) print(lines(doc, 2));
  print("\n");
  if (!formula.empty()) print_formula(formula);
  print_row("devices", all_of(candidates, "devices"));
  print_row("dtypes", all_of(candidates, "dtypes"));
  print_row("flags", all_of(candidates, "flags"));
  print_row("gradients", all_of(candidates, "gradients"));
  for (const Report& record : report.at("chain")) {
    print_row("on " + text_of(record, "device"), served_by(record));
  }
  return status;
}

}  // namespace opdock::cli
