// SPDX-License-Identifier: Apache-2.0
#include "manifest/formula_gradients.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string_view>
#include <utility>

#include "formula/formula.h"
#include "manifest/formula_parameters.h"
#include "opdock/opdock.h"
#include "schema/gradient.h"
#include "schema/op_flags.h"
#include "schema/schema.h"

namespace opdock {
namespace {

// Returns the schema of an op that computes the gradients of `of`'s parameters `params`. grads: the
// names of the incoming gradients, one for each result.
Schema gradient_schema(const Schema& of, std::string name, const std::vector<std::string>& grads,
                       const std::vector<std::string>& params) {
  Schema made;
  made.name = std::move(name);
  for (const std::string& grad : grads) {
    SchemaParam param;
    param.name = grad;
    param.type.tag = OPDOCK_TAG_TENSOR;
    made.params.push_back(std::move(param));
  }
  made.params.insert(made.params.end(), of.params.begin(), of.params.end());
  for (const std::string& param : params) {
    SchemaReturn result;
    result.type = of.params[static_cast<size_t>(of.find(param))].type;
    made.returns.push_back(result);
  }
  return made;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::vector<std::string> split(std::string_view names) {
  std::vector<std::string> all;
  while (!names.empty()) {
    const size_t end = std::min(names.find(", "), names.size());
    all.emplace_back(names.substr(0, end));
    names.remove_prefix(std::min(end + 2, names.size()));
  }
  return all;
}

// Returns the declaration "x, bias = NAME(grads[0], x, bias, approximate=approximate)".
std::string declaration(const Schema& of, const std::string& name, size_t results,
                        const std::vector<std::string>& params) {
  std::string text = joined(params) + " = " + name + "(";
  for (size_t i = 0; i < results; ++i)
    text += (i == 0 ? "grads[" : ", grads[") + std::to_string(i) + "]";
  for (const SchemaParam& param : of.params)
    text += ", " + (param.keyword_only ? param.name + "=" : std::string()) + param.name;
  return text + ")";
}

// Returns whether the declaration passes the op what declaration() passes it.
bool is_plain(const Gradient& gradient, size_t results) {
  for (size_t i = 0; i < gradient.args.size(); ++i) {
    const GradientArg& arg = gradient.args[i];
    const bool is_incoming = i < results;
    if (arg.kind != (is_incoming ? OPDOCK_GRADIENT_INCOMING : OPDOCK_GRADIENT_PARAM)) return false;
    if (arg.index != (is_incoming ? i : i - results)) return false;
  }
  return true;
}

bool is_tensor(const SchemaParam& param) {
  return param.type.tag == OPDOCK_TAG_TENSOR && !param.type.list;
}
std::vector<std::string> tensors_of(const Schema& schema) {
  std::vector<std::string> names;
  for (const SchemaParam& param : schema.params)
    if (is_tensor(param)) names.push_back(param.name);
  return names;
}

// Returns the parameters whose gradients the op named `name` returns, as `of` declares it.
std::vector<std::string> declared_params(const OpDecl& of, const std::string& name) {
  for (const std::string& text : of.gradients) {
    const size_t at = text.find(" = ");
    if (at != text.npos && text.compare(at + 3, name.size() + 1, name + "(") == 0)
      return split(std::string_view(text).substr(0, at));
  }
  return {};
}

void fill_in(OpDecl* op, const OpDecl& of, const Schema& schema, std::vector<std::string> params) {
  op->formula = of.formula;
  if (op->doc.empty()) op->doc = "The gradients of " + of.name + "'s " + joined(params) + ".";
  if (op->shape.empty()) {
    for (const std::string& param : params) {
      const bool is_optional = schema.params[static_cast<size_t>(schema.find(param))].type.optional;
      op->shape.push_back("like " + param + (is_optional ? " if " + param : ""));
    }
  }
  op->of_params = std::move(params);
  op->num_grads = schema.returns.size();
}

// Returns how many results the formula has, or nothing if its op needs no gradient op: some result
// is no float, or it is a parameter.
std::optional<size_t> results_with_gradients(const OpDecl& op, const Schema& schema) {
  const bool is_float = std::all_of(op.dtypes.begin(), op.dtypes.end(), [](const std::string& one) {
    return one.find("float") != one.npos;
  });
  if (!is_float) return std::nullopt;
  for (const SchemaParam& param : schema.params)
    if (param.type.alias != 0) return std::nullopt;
  try {
    const formula::Formula parsed(op.formula, formula_parameters(schema));
    const formula::Graph graph = parsed.graph(common_arguments(schema, formula::Type::kFloat32));
    for (const formula::Id result : graph.results())
      if (!formula::is_float(graph[result].type)) return std::nullopt;
    return parsed.num_results();
  } catch (const std::exception&) {
    return std::nullopt;  // A call says what is wrong with it.
  }
}

}  // namespace

GradientFault fill_in_gradient(Manifest* manifest, size_t number) {
  OpDecl& op = manifest->ops[number];
  const std::optional<Schema> own = parse_schema(op.schema, nullptr);
  if (!own) return {};  // check_op() reports it
  const auto of = std::find_if(manifest->ops.begin(), manifest->ops.end(), [&](const OpDecl& one) {
    return one.name == op.gradient_of && one.gradient_of.empty() && !one.formula.empty();
  });
  if (of == manifest->ops.end())
    return {"gradient-of", "\"" + op.gradient_of + "\"", "an op of this plugin that has a formula"};
  const std::optional<Schema> schema = parse_schema(of->schema, nullptr);
  if (!schema) return {};
  const size_t results = schema->returns.size();
  const bool is_declared = !of->gradients.empty();
  const std::vector<std::string> params =
      is_declared ? declared_params(*of, own->name) : tensors_of(*schema);
  const std::string wanted = declaration(*schema, own->name, results, params);
  if (params.empty() || std::any_of(params.begin(), params.end(), [&](const std::string& name) {
        const int at = schema->find(name);
        return at < 0 || !is_tensor(schema->params[static_cast<size_t>(at)]);
      }))
    return {"gradient-of", "\"" + op.gradient_of + "\", which declares no gradient by " + own->name,
            "\"x, y\" = \"" + own->name + "(…)\" in its gradients, or none of them declared"};
  std::vector<std::string> grads;
  for (size_t i = 0; i < results && i < own->params.size(); ++i)
    grads.push_back(own->params[i].name);
  grads.resize(results, "grad");
  const std::string text = gradient_schema(*schema, own->name, grads, params).text();
  if (own->text() != text) return {"schema", own->text(), text};
  if (is_declared) {
    std::vector<Schema> schemas;
    for (const OpDecl& one : manifest->ops)
      if (std::optional<Schema> parsed = parse_schema(one.schema, nullptr))
        schemas.push_back(*std::move(parsed));
    Reason reason{};
    const auto gradients = parse_gradients(of->gradients, *schema, schemas, &reason);
    if (!gradients) return {};  // check_gradients() reports it
    for (const Gradient& gradient : *gradients)
      if (gradient.op == own->name && !is_plain(gradient, results))
        return {"gradient-of", "a gradient of \"" + op.gradient_of + "\" with other arguments",
                wanted};
  } else {
    of->gradients.push_back(wanted);
  }
  fill_in(&op, *of, *schema, params);
  return {};
}

void add_formula_gradients(Manifest* manifest) {
  const size_t count = manifest->ops.size();
  for (size_t i = 0; i < count; ++i) {
    const OpDecl of = manifest->ops[i];
    if (of.formula.empty() || !of.gradient_of.empty() || !of.gradients.empty()) continue;
    const std::optional<Schema> schema = parse_schema(of.schema, nullptr);
    const std::optional<size_t> results = results_with_gradients(of, *schema);
    const std::string name = of.name + "_backward";
    const bool is_taken = std::any_of(manifest->ops.begin(), manifest->ops.end(),
                                      [&](const OpDecl& one) { return one.name == name; });
    if (!results || is_taken) continue;
    std::string grad = "grad";
    const auto is_param = [&](const std::string& found) { return schema->find(found) >= 0; };
    while (is_param(grad) || is_param(grad + "_0")) grad = "grad_" + grad;
    std::vector<std::string> grads;
    for (size_t k = 0; k < *results; ++k)
      grads.push_back(*results == 1 ? grad : grad + "_" + std::to_string(k));
    const std::vector<std::string> params = tensors_of(*schema);
    OpDecl made;
    made.name = name;
    made.schema = gradient_schema(*schema, name, grads, params).text();
    made.devices = of.devices;
    made.dtypes = of.dtypes;
    made.gradient_of = of.name;
    made.is_added = true;
    for (const std::string& flag : of.flags)
      if (flag != "in-place") made.flags.push_back(flag);
    made.flag_bits = op_flag_bits(made.flags);
    made.schema_line = of.schema_line;
    fill_in(&made, of, *schema, params);
    manifest->ops[i].gradients = {declaration(*schema, name, *results, params)};
    manifest->ops.push_back(std::move(made));
  }
}

}  // namespace opdock
