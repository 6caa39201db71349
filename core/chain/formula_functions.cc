// SPDX-License-Identifier: Apache-2.0
#include "chain/formula_functions.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "base/mutex.h"
#include "call/function.h"
#include "chain/function_table.h"
#include "chain/runtime.h"
#include "fused/fused_op.h"
#include "manifest/formula_parameters.h"
#include "opdock/types.hpp"
#include "schema/dtype.h"

namespace opdock {
namespace {

// Resolves a formula's function on any device, and leaves the rest to the runtime's table.
class FormulaResolver : public Resolver {
 public:
  FormulaResolver(FusedOp* op, FunctionTable* others) : op_(op), others_(*others) {}

  Status resolve(const opdock_function&, opdock_device device, Target** out) override {
    const opdock_device_facts* facts = cpu_facts();
    Driver* driver = nullptr;
    if (device.type != OPDOCK_CPU) {
      Status done = driver_for(static_cast<Backend>(device.type), &driver);
      if (done.ok()) done = driver->facts(device.index, &facts);
      if (!done.ok()) return done;
    }
    *out = intern_target(&op_->op, "formula", device, facts, driver, nullptr, {});
    return {};
  }
  void waiting(bool begins) override { others_.waiting(begins); }
  bool cancelled() override { return others_.cancelled(); }
  std::string doc(const opdock_function&) override { return op_->doc; }
  std::string formula(const opdock_function&) override { return op_->doc; }
  Status compile_kernel(opdock_device device, const std::string& name, std::string source,
                        const char* kernel, opdock_kernel** out) override {
    return others_.compile_kernel(device, name, std::move(source), kernel, out);
  }
  opdock_formula_function find_cpu_code(const std::string& name,
                                        const std::string& source) override {
    return others_.find_cpu_code(name, source);
  }
  void make_cpu_code(const std::string& name, const std::string& source,
                     CpuCodeMade* out) override {
    others_.make_cpu_code(name, source, out);
  }
  bool compiles_cpu_code_first() const override { return others_.compiles_cpu_code_first(); }
  opdock_generator* generator(opdock_device device) override { return others_.generator(device); }
  void log(int32_t level, const char* message) override { others_.log(level, message); }
  uint32_t threads() const override { return others_.threads(); }

 private:
  FusedOp* op_;
  FunctionTable& others_;
};

// op: never freed, because targets are interned by the address of their op.
struct FormulaFunction {
  FormulaFunction(FusedOp* op, FunctionTable* others, Declared declared)
      : resolver(op, others), function(op->schema.name, op->schema, &resolver, declared) {}
  FormulaResolver resolver;
  opdock_function function;
};

// The functions of one runtime, by schema, formula, the parameters of which it has gradients, and
// whether they are evaluated.
struct FormulaTable {
  using Key = std::tuple<std::string, std::string, std::string, bool>;
  Mutex mutex;  // guards what follows
  std::map<Key, std::unique_ptr<FormulaFunction>> functions;
};

FormulaTable& formula_table(opdock_runtime* runtime) {
  static Mutex& making = *new Mutex;
  const std::lock_guard lock(making);
  if (runtime->formulas == nullptr) runtime->formulas = std::make_shared<FormulaTable>();
  return *static_cast<FormulaTable*>(runtime->formulas.get());
}

std::string schema_of(const formula::Formula& formula) {
  std::string text = "formula(";
  for (const formula::Parameter& param : formula.parameters())
    text += (text.back() == '(' ? "Tensor " : ", Tensor ") + param.name;
  text += ") -> ";
  if (formula.num_results() == 1) return text + "Tensor";
  for (size_t i = 0; i < formula.num_results(); ++i) text += i == 0 ? "(Tensor" : ", Tensor";
  return text + ")";
}

std::unique_ptr<FusedOp> make_op(std::string schema_text, const std::string& text) {
  if (schema_text.empty()) schema_text = schema_of(formula::Formula(text));
  Reason error{};
  std::optional<Schema> schema = parse_schema(schema_text, &error);
  if (!schema) throw Error(OPDOCK_INVALID_ARGUMENT, to_text(error));
  formula::Formula formula(text, formula_parameters(*schema));
  return std::make_unique<FusedOp>(*std::move(schema), std::move(formula));
}

// Returns the schema of the gradients: those of the formula's results, then its parameters.
std::string gradient_schema(const Schema& schema, const formula::Formula& formula, size_t results) {
  Schema made = schema;
  std::string name = "grad";
  while (schema.find(name) >= 0 || schema.find(name + "_0") >= 0) name = "grad_" + name;
  std::vector<SchemaParam> grads;
  for (size_t i = 0; i < formula.num_results(); ++i) {
    SchemaParam param;
    param.name = formula.num_results() == 1 ? name : name + "_" + std::to_string(i);
    param.type.tag = OPDOCK_TAG_TENSOR;
    grads.push_back(std::move(param));
  }
  made.params.insert(made.params.begin(), grads.begin(), grads.end());
  for (SchemaParam& param : made.params) param.type.alias = 0;
  made.name += "_backward";
  made.returns.assign(results, {});
  for (SchemaReturn& result : made.returns) result.type.tag = OPDOCK_TAG_TENSOR;
  return made.text();
}

// of: names of parameters, separated by commas.
std::unique_ptr<FusedOp> make_gradient_op(std::string schema_text, const std::string& text,
                                          const std::string& of) {
  if (schema_text.empty()) schema_text = schema_of(formula::Formula(text));
  Reason error{};
  std::optional<Schema> schema = parse_schema(schema_text, &error);
  if (!schema) throw Error(OPDOCK_INVALID_ARGUMENT, to_text(error));
  formula::Formula formula(text, formula_parameters(*schema));
  std::vector<size_t> wanted;
  for (size_t i = 0; i < schema->params.size(); ++i) {
    const SchemaParam& param = schema->params[i];
    if (("," + of + ",").find("," + param.name + ",") == std::string::npos) continue;
    if (param.type.tag != OPDOCK_TAG_TENSOR)
      throw formula::Error("\"" + param.name + "\": found " + to_text(param.type) +
                           ", wanted a Tensor, which has a gradient");
    wanted.push_back(i);
  }
  const auto names = static_cast<size_t>(std::count(of.begin(), of.end(), ',')) + 1;
  if (wanted.size() != names)
    throw formula::Error("found the gradients of \"" + of + "\", wanted names of parameters of " +
                         schema->text());
  std::optional<Schema> own = parse_schema(gradient_schema(*schema, formula, names), &error);
  if (!own) throw Error(OPDOCK_INVALID_ARGUMENT, to_text(error));
  return std::make_unique<FusedOp>(*std::move(own), std::move(formula), std::move(wanted));
}

std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> all;
  for (size_t at = 0; at <= names.size();) {
    const size_t end = std::min(names.find(", ", at), names.size());
    all.push_back(names.substr(at, end - at));
    at = end + 2;
  }
  return all;
}

// An op of a plugin, whose schema has the gradients of the results before the formula's parameters.
std::unique_ptr<FusedOp> make_declared_gradient(const opdock_op& op, const char* text) {
  Reason error{};
  std::optional<Schema> schema = parse_schema(op.schema, &error);
  if (!schema) throw Error(OPDOCK_INVALID_ARGUMENT, to_text(error));
  std::vector<formula::Parameter> own = formula_parameters(*schema);
  own.erase(own.begin(), own.begin() + std::min<std::ptrdiff_t>(op.num_grads, std::ssize(own)));
  formula::Formula formula(text, std::move(own));
  if (formula.num_results() != op.num_grads)
    throw formula::Error("found the gradients of " + std::to_string(op.num_grads) +
                         " results, wanted those of the formula's " +
                         std::to_string(formula.num_results()));
  const std::string of = op.gradients_of;
  std::vector<size_t> wanted;
  for (const std::string& name : split_names(of)) {
    const std::vector<formula::Parameter>& params = formula.parameters();
    const auto found = std::find_if(params.begin(), params.end(), [&](const auto& param) {
      return param.name == name && param.kind == formula::Parameter::Kind::kTensor;
    });
    if (found == params.end())
      throw formula::Error("found the gradient of \"" + name + "\", wanted a Tensor of " +
                           schema->text());
    wanted.push_back(static_cast<size_t>(found - params.begin()));
  }
  if (wanted.size() != schema->returns.size())
    throw formula::Error("found the gradients of \"" + of + "\", wanted as many as " +
                         schema->text() + " returns");
  return std::make_unique<FusedOp>(*std::move(schema), std::move(formula), std::move(wanted));
}

}  // namespace

Status formula_function(opdock_runtime* runtime, const std::string& schema,
                        const std::string& formula, const std::string& gradients_of,
                        bool is_evaluated, opdock_function** out) {
  FormulaTable& table = formula_table(runtime);
  FormulaTable::Key key(schema, formula, gradients_of, is_evaluated);
  {
    const std::lock_guard lock(table.mutex);
    const auto known = table.functions.find(key);
    if (known != table.functions.end()) {
      *out = &known->second->function;
      return {};
    }
  }
  std::unique_ptr<FusedOp> op;
  try {
    op = gradients_of.empty() ? make_op(schema, formula)
                              : make_gradient_op(schema, formula, gradients_of);
  } catch (const formula::Error& problem) {
    return {OPDOCK_INVALID_ARGUMENT, std::string("formula: ") + problem.what()};
  }
  op->is_evaluated = is_evaluated;
  Declared declared;
  declared.flags = op->op.flags;
  declared.device_arg = op->op.device_arg;
  auto made = std::make_unique<FormulaFunction>(op.release(), &function_table(runtime), declared);
  const std::lock_guard lock(table.mutex);
  *out = &table.functions.emplace(std::move(key), std::move(made)).first->second->function;
  return {};
}

Status formula_op(const opdock_op* op, const char* formula, const opdock_op** out) {
  static Mutex& mutex = *new Mutex;
  static auto& made = *new std::map<const opdock_op*, const opdock_op*>;
  {
    const std::lock_guard lock(mutex);
    const auto known = made.find(op);
    if (known != made.end()) {
      *out = known->second;
      return {};
    }
  }
  std::unique_ptr<FusedOp> own;
  try {
    const bool is_gradient = OPDOCK_HAS(op, opdock_op, num_grads) && op->gradients_of != nullptr;
    own = is_gradient ? make_declared_gradient(*op, formula) : make_op(op->schema, formula);
  } catch (const formula::Error& problem) {
    return {OPDOCK_INCOMPATIBLE, std::string(op->schema) + ": formula: " + problem.what()};
  }
  own->own_plan = op->plan;
  if (OPDOCK_HAS(op, opdock_op, cpu_code)) own->own_code = op->cpu_code;
  if (OPDOCK_HAS(op, opdock_op, tensor_rules)) {
    own->op.num_tensor_rules = op->num_tensor_rules;
    own->op.tensor_rules = op->tensor_rules;
  }
  own->op.flags = op->flags;
  own->op.doc = op->doc;
  own->op.device_arg = op->device_arg;
  own->op.num_shape_rules = op->num_shape_rules;
  own->op.shape_rules = op->shape_rules;
  own->op.arg_devices = op->arg_devices;
  own->op.gradients = op->gradients;
  own->op.num_gradients = op->num_gradients;
  const std::lock_guard lock(mutex);
  // Never freed: targets are interned by the address of their op.
  *out = made.emplace(op, &own.release()->op).first->second;
  return {};
}

}  // namespace opdock
