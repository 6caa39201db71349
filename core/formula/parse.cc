// The grammar. Within an expression, operators wait in a list until one that binds less arrives;
// only parentheses, calls and the values of conditionals nest, at most kMaxDepth of them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "formula/builder.h"
#include "formula/operators.h"
#include "formula/syntax_error.h"

namespace opdock::formula {
namespace {

constexpr std::string_view kWords[] = {"and",  "or",    "not",  "if",    "else",
                                       "True", "False", "None", "return"};
constexpr std::pair<std::string_view, double> kNamedNumbers[] = {
    {"e", 2.718281828459045},
    {"inf", std::numeric_limits<double>::infinity()},
    {"nan", std::numeric_limits<double>::quiet_NaN()},
    {"pi", 3.141592653589793},
};
constexpr size_t kMaxArguments = 3;
constexpr std::string_view kUnused = "_";  // of a part that nothing uses

bool is_word(std::string_view name) {
  return std::find(std::begin(kWords), std::end(kWords), name) != std::end(kWords);
}

class Parser {
 public:
  Parser(Program* program, std::vector<Parameter>* parameters, bool is_open)
      : program_(*program), builder_(program), parameters_(*parameters), is_open_(is_open) {}
  void parse();

 private:
  // An operator that waits for its last operand.
  struct Pending {
    Binding binding;
    bool is_prefix;
    Op op;
    Token token;
    size_t skip;  // of "and" and "or"
  };

  const Token& next() const { return tokens_[at_]; }
  const Token& after() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool accept(std::string_view symbol);
  [[noreturn]] void refuse(const Token& token, const std::string& wanted) const;
  void check_parameters() const;
  void statement();
  size_t names_to_assign() const;
  void unpack(size_t count);
  void cat();
  void view(ExprId call);
  void find_whole();
  void returned();
  void assign(const Token& name, ExprId value);
  void check_name(const Token& name) const;
  void check_use() const;

  ExprId expression();
  ExprId operators();
  bool prefix(std::vector<Pending>* pending);
  bool infix(std::vector<Pending>* pending, std::vector<ExprId>* operands);
  void reduce(std::vector<Pending>* pending, std::vector<ExprId>* operands);
  ExprId operand();
  ExprId atom();
  ExprId name(const Token& token);
  ExprId call(const Token& name, ExprId receiver);
  size_t keyword(const Token& name, const Function& function) const;
  void nest(const Token& token);

  Program& program_;
  Builder builder_;
  std::vector<Parameter>& parameters_;
  bool is_open_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  // The number of parentheses, calls and values of conditionals around this place, and of signs and
  // powers that wait; -1 outside of all expressions.
  int depth_ = -1;
  std::map<std::string, size_t, std::less<>> known_parameters_;
  std::vector<bool> is_parameter_used_;
  std::map<std::string_view, size_t> variables_;  // the last statement that assigns each
};

std::string found_text(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kEnd:
      return "found the end of the formula";
    case Token::Kind::kBreak:
      return token.text == ";" ? "found \";\"" : "found the end of the line";
    case Token::Kind::kString:
      return "found the string " + quoted(token.text);
    default:
      return "found " + quoted(token.text);
  }
}

void Parser::refuse(const Token& token, const std::string& wanted) const {
  builder_.refuse(token.place, found_text(token) + ", wanted " + wanted);
}

bool Parser::accept(std::string_view symbol) {
  if (!next().is(symbol)) return false;
  take();
  return true;
}

void Parser::nest(const Token& token) {
  if (++depth_ > kMaxDepth)
    builder_.refuse(token.place, "found more than " + std::to_string(kMaxDepth) +
                                     " nested parentheses, calls, signs and powers, wanted at most "
                                     "that many; assign a part to a variable first");
}

void Parser::check_parameters() const {
  std::map<std::string_view, bool> seen;
  for (const Parameter& one : parameters_) {
    const std::string start = "parameter " + quoted(one.name) + ": found ";
    if (!is_name(one.name) || one.name.size() > kMaxName)
      throw SyntaxError(1, 1,
                        start +
                            (one.name.size() > kMaxName
                                 ? "a name of " + std::to_string(one.name.size()) + " letters"
                                 : std::string("no name")) +
                            ", wanted letters, digits and _, at most " + std::to_string(kMaxName) +
                            " and no digit first");
    if (is_word(one.name) || find_type(one.name))
      throw SyntaxError(1, 1, start + "a word of the language, wanted another name");
    if (!seen.emplace(one.name, true).second)
      throw SyntaxError(1, 1, start + "it twice, wanted different names");
  }
}

void Parser::parse() {
  check_parameters();
  for (size_t i = 0; i < parameters_.size(); ++i) known_parameters_.emplace(parameters_[i].name, i);
  is_parameter_used_.resize(parameters_.size());
  tokens_ = read_tokens(program_.source);
  if (next().kind == Token::Kind::kEnd)
    builder_.refuse(0,
                    "found an empty formula, wanted an expression, or statements and \"return\"");
  while (program_.results.empty()) {
    statement();
    if (next().kind != Token::Kind::kBreak && next().kind != Token::Kind::kEnd)
      refuse(next(), next().is_word("is")
                         ? "an operator; compare with == and !=, or write \"a if weight else b\""
                         : "an operator or the end of the line");
    take();
  }
  check_use();
  find_whole();
}

// Parses a statement. Another one must follow, unless this one returns the results.
void Parser::statement() {
  const Token first = next();
  if (first.is_word("return")) {
    take();
    returned();
    if (next().kind == Token::Kind::kBreak)
      refuse(after(), "the end of the formula after \"return\"");
    return;
  }
  if (first.kind == Token::Kind::kName && after().is("=")) {
    check_name(first);
    take();
    take();
    const ExprId value = expression();
    if (builder_[value].kind == Kind::kParts)
      refuse(first, "as many names as there are parts: first, second = chunk(x, 2)");
    assign(first, value);
    if (next().kind == Token::Kind::kEnd)
      refuse(next(), "a last line with the results: \"return " + std::string(first.text) + "\"");
    return;
  }
  if (const size_t count = names_to_assign()) {
    unpack(count);
    if (next().kind == Token::Kind::kEnd)
      refuse(next(), "a last line with the results: \"return …\"");
    return;
  }
  // 1, b = …: looked for first, because the names may not be known.
  for (size_t i = at_; after().is(",") && i < tokens_.size(); ++i) {
    if (tokens_[i].kind == Token::Kind::kBreak || tokens_[i].is("(")) break;
    if (tokens_[i].is("=")) refuse(tokens_[i], "one name before \"=\"");
  }
  returned();
  if (next().is("=")) refuse(next(), "one name before \"=\", or \"==\" to compare");
  if (next().kind == Token::Kind::kBreak)
    builder_.refuse(first.place,
                    "found an expression that nothing uses, wanted \"name = …\", or "
                    "\"return …\" in the last line");
}

// Returns how many names stand before "=", separated by commas; 0 for one name, or if there is no
// such statement.
size_t Parser::names_to_assign() const {
  const auto is_name = [&](size_t i) {
    return i < tokens_.size() && tokens_[i].kind == Token::Kind::kName;
  };
  size_t count = 1, at = at_;
  if (!is_name(at)) return 0;
  for (++at; tokens_[at].is(",") && is_name(at + 1); at += 2) ++count;
  return count > 1 && tokens_[at].is("=") ? count : 0;
}

// first, second = chunk(x, 2)
void Parser::unpack(size_t count) {
  std::vector<Token> names;
  for (size_t i = 0; i < count; ++i) {
    names.push_back(take());
    check_name(names.back());
    for (size_t j = 0; j < i; ++j)
      if (names[j].text == names[i].text && names[i].text != kUnused)
        refuse(names[i], "another name, because this one stands there twice");
    take();
  }
  const Token first = next();
  const ExprId chunk = expression();
  if (builder_[chunk].kind != Kind::kParts)
    refuse(first, "one name before \"=\", or chunk(x, " + std::to_string(count) + ") behind it");
  const View view = program_.views[builder_[chunk].view];
  if (view.parts != count)
    builder_.refuse(names[0].place, "found " + std::to_string(count) + " names, wanted " +
                                        std::to_string(view.parts) +
                                        ", one for each part; a part that is not used is called _");
  for (size_t i = 0; i < count; ++i) {
    Expr part;
    part.form = Form::kPart;
    part.is_optional = parameters_[view.parameter].is_optional;
    part.kind = part.is_optional ? Kind::kOptional : Kind::kValue;
    part.place = names[i].place;
    part.text = names[i].text;
    part.args[0] = chunk;
    part.integer = static_cast<int64_t>(i);
    assign(names[i], builder_.add(part));
  }
}

void Parser::returned() {
  do {
    if (next().is_word("cat") && after().is("(")) {
      cat();
    } else {
      const ExprId value = expression();
      builder_.need_value(value);
      program_.results.push_back(value);
      program_.result_parts.push_back({});
    }
    if (program_.results.size() > kMaxResults)
      builder_.refuse(next().place, "found more than " + std::to_string(kMaxResults) +
                                        " results, wanted at most that many");
  } while (accept(","));
}

// cat(a, b): a result of several parts.
void Parser::cat() {
  const Token name = take();
  const size_t begin = program_.results.size();
  take();
  do {
    const ExprId value = expression();
    builder_.need_value(value);
    program_.results.push_back(value);
  } while (accept(","));
  if (!accept(")")) refuse(next(), "\",\" or \")\" in the call of cat");
  const size_t parts = program_.results.size() - begin;
  if (parts < 2 || parts > static_cast<size_t>(kMaxParts))
    builder_.refuse(name.place, "found cat of " + std::to_string(parts) + " parts, wanted 2 to " +
                                    std::to_string(kMaxParts));
  for (size_t i = 0; i < parts; ++i)
    program_.result_parts.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(parts)});
  const Token& behind = next();
  if (!behind.is(",") && behind.kind != Token::Kind::kBreak && behind.kind != Token::Kind::kEnd)
    refuse(behind, "\",\" or the end of the formula: cat(…) is a whole result");
}

void Parser::check_name(const Token& name) const {
  if (is_word(name.text) || find_type(name.text))
    refuse(name, "another name, because this one is a word of the language");
}

void Parser::assign(const Token& name, ExprId value) {
  const auto known = variables_.find(name.text);
  if (known != variables_.end()) {
    const Statement& before = program_.statements[known->second];
    if (!before.is_used && name.text != kUnused)
      builder_.refuse(before.place, "found a value of " + quoted(name.text) +
                                        " that nothing uses before the next one, wanted a use; "
                                        "remove this statement");
  }
  variables_[name.text] = program_.statements.size();
  Statement statement;
  statement.name = name.text;
  statement.place = name.place;
  statement.value = value;
  statement.end = program_.steps.size();
  program_.statements.push_back(statement);
}

void Parser::check_use() const {
  for (const Statement& one : program_.statements)
    if (!one.is_used && one.name != kUnused)
      builder_.refuse(one.place, "found the variable " + quoted(one.name) +
                                     " that nothing uses, wanted a use; remove this statement");
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (!is_parameter_used_[i])
      throw SyntaxError(1, 1,
                        "parameter " + quoted(parameters_[i].name) +
                            ": found no use in the formula, wanted one; use it or remove it");
}

ExprId Parser::expression() {
  nest(next());
  const size_t begin = program_.steps.size();
  ExprId result = operators();
  if (next().is_word("if")) {
    // The choice is written after the first value and evaluated before it.
    const Token word = take();
    const size_t middle = program_.steps.size();
    const ExprId choice = operators();
    builder_.need_choice(choice, "between tensors write where(condition, a, b)");
    if (!next().is_word("else")) refuse(next(), "\"else\", because of the \"if\" before");
    take();
    const auto at = [&](size_t i) { return program_.steps.begin() + static_cast<ptrdiff_t>(i); };
    std::rotate(at(begin), at(middle), program_.steps.end());
    const size_t first = begin + program_.steps.size() - middle;
    program_.steps.insert(at(first), {choice, middle - begin, false});
    const size_t skip = builder_.skip(choice, true);
    const ExprId other = expression();
    builder_.end_skip(skip);
    result = builder_.conditional(word, result, choice, other);
  }
  --depth_;
  return result;
}

ExprId Parser::operators() {
  std::vector<Pending> pending;
  std::vector<ExprId> operands;
  do {
    while (prefix(&pending)) continue;
    operands.push_back(operand());
  } while (infix(&pending, &operands));
  while (!pending.empty()) reduce(&pending, &operands);
  return operands.back();
}

bool Parser::prefix(std::vector<Pending>* pending) {
  const Token& token = next();
  if (token.is_word("not")) {
    if (!pending->empty() && pending->back().binding > Binding::kNot)
      refuse(token, "a value after " + quoted(pending->back().token.text) +
                        "; put \"not …\" in parentheses");
    pending->push_back({Binding::kNot, true, Op::kConstant, token, 0});
  } else if (token.is("-") || token.is("+") || token.is("~")) {
    pending->push_back({Binding::kSign, true, Op::kConstant, token, 0});
  } else {
    return false;
  }
  nest(token);
  take();
  return true;
}

// Takes the operator that follows, after it has reduced the waiting ones that bind as tightly.
// Returns false if no operator follows.
bool Parser::infix(std::vector<Pending>* pending, std::vector<ExprId>* operands) {
  const Token token = next();
  std::optional<BinaryOperator> symbol;
  if (token.is_word("and")) symbol = {"and", Binding::kAnd, Op::kConstant};
  if (token.is_word("or")) symbol = {"or", Binding::kOr, Op::kConstant};
  for (const BinaryOperator& one : kBinaryOperators)
    if (token.is(one.symbol)) symbol = one;
  if (!symbol) return false;
  // "**" is the only operator that binds to the right: a ** b ** c is a ** (b ** c).
  while (!pending->empty() && symbol->binding != Binding::kPower &&
         pending->back().binding >= symbol->binding) {
    if (symbol->binding == Binding::kCompare && pending->back().binding == Binding::kCompare)
      refuse(token, "one comparison; write (a < b) & (b < c), or \"and\" between choices");
    reduce(pending, operands);
  }
  Pending one = {symbol->binding, false, symbol->op, token, 0};
  if (symbol->binding == Binding::kAnd || symbol->binding == Binding::kOr)
    one.skip = builder_.skip(operands->back(), symbol->binding == Binding::kOr);
  pending->push_back(one);
  if (symbol->binding == Binding::kPower) nest(token);
  take();
  return true;
}

void Parser::reduce(std::vector<Pending>* pending, std::vector<ExprId>* operands) {
  const Pending last = pending->back();
  pending->pop_back();
  if (last.is_prefix || last.binding == Binding::kPower) --depth_;
  const ExprId b = operands->back();
  operands->pop_back();
  if (last.is_prefix) {
    operands->push_back(last.binding == Binding::kNot ? builder_.negation(last.token, b)
                                                      : builder_.unary(last.token, b));
    return;
  }
  const ExprId a = operands->back();
  ExprId& result = operands->back();
  if (last.binding == Binding::kAnd || last.binding == Binding::kOr) {
    builder_.end_skip(last.skip);
    result =
        builder_.logical(last.token, last.binding == Binding::kAnd ? Form::kAnd : Form::kOr, a, b);
  } else if (last.binding == Binding::kCompare) {
    result = builder_.comparison(last.token, last.op, a, b);
  } else {
    result = builder_.binary(last.token, last.op, a, b);
  }
}

// Parses an atom, and the methods and attributes behind it.
ExprId Parser::operand() {
  ExprId result = atom();
  while (accept(".")) {
    const Token name = next();
    if (name.kind != Token::Kind::kName) refuse(name, "the name of a method, or dtype");
    take();
    if (next().is("(")) {
      result = call(name, result);
    } else if (name.text == "dtype") {
      result = builder_.dtype(name, result);
    } else {
      refuse(name, "\".dtype\", or parentheses after the name of a method");
    }
  }
  return result;
}

ExprId Parser::atom() {
  const Token token = next();
  Expr expr;
  expr.place = token.place;
  expr.text = token.text;
  switch (token.kind) {
    case Token::Kind::kInteger:
      expr.form = Form::kInteger;
      expr.integer = token.integer;
      break;
    case Token::Kind::kReal:
      expr.form = Form::kReal;
      expr.real = token.real;
      break;
    case Token::Kind::kString:
      expr.form = Form::kString;
      expr.kind = Kind::kString;
      break;
    case Token::Kind::kName:
      take();
      if (next().is("(") && !is_word(token.text)) return call(token, kNoExpr);
      return name(token);
    default: {
      if (!token.is("(")) refuse(token, "a value: a name, a number, a call or \"(\"");
      take();
      const ExprId inside = expression();
      if (!accept(")"))
        refuse(next(),
               next().is(",") ? "\")\"; there are no tuples" : "\")\" for the \"(\" before");
      return inside;
    }
  }
  take();
  return builder_.add(expr);
}

// Parses a name that is not called.
ExprId Parser::name(const Token& token) {
  Expr expr;
  expr.place = token.place;
  expr.text = token.text;
  const auto variable = variables_.find(token.text);
  if (variable != variables_.end()) {
    Statement& statement = program_.statements[variable->second];
    statement.is_used = true;
    expr.form = Form::kVariable;
    expr.definition = statement.value;
    expr.kind = builder_[statement.value].kind;
    expr.is_optional = builder_[statement.value].is_optional;
    return builder_.add(expr);
  }
  const auto use = [&](size_t i) {
    const Parameter& parameter = parameters_[i];
    is_parameter_used_[i] = true;
    expr.form = Form::kParameter;
    expr.parameter = i;
    expr.is_optional = parameter.is_optional;
    expr.kind = parameter.kind == Parameter::Kind::kBool     ? Kind::kChoice
                : parameter.kind == Parameter::Kind::kString ? Kind::kString
                : parameter.kind == Parameter::Kind::kType   ? Kind::kType
                : parameter.is_optional                      ? Kind::kOptional
                                                             : Kind::kValue;
    return builder_.add(expr);
  };
  const auto parameter = known_parameters_.find(token.text);
  if (parameter != known_parameters_.end()) return use(parameter->second);
  if (token.text == "True" || token.text == "False") {
    expr.form = token.text == "True" ? Form::kTrue : Form::kFalse;
    expr.kind = Kind::kFlag;
    return builder_.add(expr);
  }
  if (token.text == "None") {
    expr.form = Form::kNothing;
    expr.kind = Kind::kNothing;
    return builder_.add(expr);
  }
  if (is_word(token.text)) refuse(token, "a value: a name, a number, a call or \"(\"");
  if (const std::optional<Type> type = find_type(token.text)) {
    expr.form = Form::kType;
    expr.kind = Kind::kType;
    expr.type = *type;
    return builder_.add(expr);
  }
  for (const auto& [name, number] : kNamedNumbers) {
    if (name != token.text) continue;
    expr.form = Form::kNamedNumber;
    expr.real = number;
    return builder_.add(expr);
  }
  if (is_open_) {
    parameters_.push_back({std::string(token.text)});
    known_parameters_.emplace(token.text, parameters_.size() - 1);
    is_parameter_used_.push_back(true);
    return use(parameters_.size() - 1);
  }
  if (const Function* const function = find_function(token.text)) {
    if (function->type)
      refuse(token, "a value; the type is " + std::string(name_of(*function->type)));
    refuse(token, "a value; to call the function write " + function->usage);
  }
  std::vector<std::string_view> names;
  for (const auto& [name, i] : variables_) names.push_back(name);
  for (const Parameter& one : parameters_) names.push_back(one.name);
  for (const auto& [name, number] : kNamedNumbers) names.push_back(name);
  for (int i = 0; i < kNumTypes; ++i) names.push_back(name_of(static_cast<Type>(i)));
  refuse(token,
         "a parameter, or a variable that was assigned before" + did_you_mean(token.text, names));
}

// Parses the call of a function, behind its name, or of a method of `receiver`.
ExprId Parser::call(const Token& name, ExprId receiver) {
  const Function* const function = find_function(name.text);
  if (function == nullptr) {
    const std::string similar = did_you_mean(name.text, function_names());
    refuse(name, std::string(receiver == kNoExpr ? "a function" : "a method") +
                     (similar.empty() ? "; docs/reference/formulas.md lists them" : similar));
  }
  if (receiver != kNoExpr && function->max_arguments == 0)
    refuse(name, "a function of the tensor; " + std::string(name.text) + "() has no argument");
  take();
  std::array<ExprId, kMaxArguments> args = {receiver, kNoExpr, kNoExpr};
  size_t count = receiver == kNoExpr ? 0 : 1;  // of those without keywords
  bool has_keywords = false;
  while (!next().is(")")) {
    const Token first = next();
    size_t i = count;
    if (first.kind == Token::Kind::kName && after().is("=")) {
      i = keyword(first, *function);
      has_keywords = true;
      take();
      take();
    } else if (has_keywords) {
      refuse(first, "keyword=value, as after each argument with a keyword: " + function->usage);
    } else if (count++ >= static_cast<size_t>(function->max_arguments)) {
      builder_.refuse(first.place, "found too many arguments, wanted " + function->usage);
    }
    if (args[i] != kNoExpr)
      builder_.refuse(first.place, "found the argument " + quoted(function->keywords[i]) +
                                       " twice, wanted it once: " + function->usage);
    args[i] = expression();
    if (!accept(",") && !next().is(")"))
      refuse(next(), "\",\" or \")\" in the call of " + std::string(function->name));
  }
  take();
  for (size_t i = 0; i < static_cast<size_t>(function->min_arguments); ++i) {
    if (args[i] != kNoExpr) continue;
    const auto given =
        kMaxArguments - static_cast<size_t>(std::count(args.begin(), args.end(), kNoExpr));
    builder_.refuse(name.place, "found " + std::to_string(given) +
                                    (given == 1 ? " argument" : " arguments") + ", wanted " +
                                    function->usage);
  }
  if (function->builtin == Builtin::kCat)
    builder_.refuse(name.place,
                    "found cat within an expression, wanted it behind \"return\", as a whole "
                    "result: return cat(a, b)");
  const ExprId made = builder_.call(name, function, args, receiver != kNoExpr);
  if (function->builtin == Builtin::kChunk || function->builtin == Builtin::kGrouped) view(made);
  return made;
}

// Notes how the call of chunk() or grouped() sees its tensor.
void Parser::view(ExprId call) {
  Expr& expr = program_.exprs[static_cast<size_t>(call)];
  const Expr& of = builder_[expr.args[0]];
  if (of.form != Form::kParameter || parameters_[of.parameter].kind != Parameter::Kind::kTensor)
    builder_.refuse(of.place, "found " + quoted(of.text) + " in the call of " +
                                  std::string(expr.function->name) +
                                  ", wanted a parameter that is a tensor");
  View made;
  made.parameter = of.parameter;
  made.is_grouped = expr.function->builtin == Builtin::kGrouped;
  if (!made.is_grouped) made.parts = static_cast<uint32_t>(builder_[expr.args[1]].integer);
  const auto is_same = [&](const View& one) {
    return one.parameter == made.parameter && one.parts == made.parts &&
           one.is_grouped == made.is_grouped;
  };
  const auto known = std::find_if(program_.views.begin(), program_.views.end(), is_same);
  expr.view = static_cast<size_t>(known - program_.views.begin());
  if (known == program_.views.end()) program_.views.push_back(made);
  expr.kind = Kind::kParts;
  if (made.is_grouped) {
    expr.is_optional = of.is_optional;
    expr.kind = of.kind;
  }
}

void Parser::find_whole() {
  std::vector<bool> is_read(program_.exprs.size(), true);  // its elements, as those of a whole
  const auto skip = [&](const Expr& expr, size_t i) {
    if (expr.args[i] != kNoExpr) is_read[static_cast<size_t>(expr.args[i])] = false;
  };
  for (const Expr& expr : program_.exprs) {
    const bool is_view = expr.form == Form::kCall && (expr.function->builtin == Builtin::kChunk ||
                                                      expr.function->builtin == Builtin::kGrouped);
    if (is_view || expr.form == Form::kDtype || expr.form == Form::kNot ||
        expr.form == Form::kAnd || expr.form == Form::kOr || expr.form == Form::kSame)
      skip(expr, 0);
    if (expr.form == Form::kConditional || expr.form == Form::kAnd || expr.form == Form::kOr ||
        expr.form == Form::kSame)
      skip(expr, 1);
  }
  program_.is_whole.assign(parameters_.size(), true);
  for (const View& view : program_.views) program_.is_whole[view.parameter] = false;
  for (size_t i = 0; i < is_read.size(); ++i) {
    const Expr& expr = program_.exprs[i];
    if (is_read[i] && expr.form == Form::kParameter) program_.is_whole[expr.parameter] = true;
  }
}

// Returns the number of the argument with that keyword.
size_t Parser::keyword(const Token& name, const Function& function) const {
  for (size_t i = 0; i < function.keywords.size(); ++i)
    if (function.keywords[i] == name.text) return i;
  refuse(name, "a keyword of " + function.usage);
}

}  // namespace

std::shared_ptr<const Program> parse(std::string_view text, std::vector<Parameter>* parameters,
                                     bool is_open) {
  const auto program = std::make_shared<Program>();
  program->source = text;
  Parser(program.get(), parameters, is_open).parse();
  return program;
}

Formula::Formula(std::string_view text, std::vector<Parameter> parameters)
    : parameters_(std::move(parameters)), program_(parse(text, &parameters_, false)) {}

Formula::Formula(std::string_view text) : program_(parse(text, &parameters_, true)) {}

size_t Formula::num_results() const {
  const std::vector<Part>& parts = program_->result_parts;
  return static_cast<size_t>(
      std::count_if(parts.begin(), parts.end(), [](const Part& one) { return one.part == 0; }));
}

std::vector<std::string> Formula::strings() const {
  std::set<std::string> texts;
  for (const Expr& expr : program_->exprs)
    if (expr.form == Form::kString) texts.emplace(expr.text);
  return {texts.begin(), texts.end()};
}

}  // namespace opdock::formula
