// SPDX-License-Identifier: Apache-2.0
#include "command_line.h"

#include <algorithm>
#include <cctype>

#include "base/similar_names.h"
#include "base/texts.h"
#include "fmt/format.h"
#include "report_text.h"
#include "subcommands.h"

namespace opdock::cli {
namespace {

using Words = std::vector<std::string>;

Words names_of(const CLI::App& app) {
  Words names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::string guess(const std::string& word, const Words& known) {
  const Words similar = similar_names(word, known);
  return similar.empty() ? "" : fmt::format("did you mean {}?", join_or(similar));
}

// Descends from `app` by the leading words that are commands, which are put into `path`. Throws
// Usage for another word where a command is expected. Stops at a word that begins with "-".
CLI::App* find_command(CLI::App* app, const Words& words, Words* path) {
  for (const std::string& word : words) {
    const Words known = names_of(*app);
    if (known.empty() || word.starts_with("-")) break;
    if (std::find(known.begin(), known.end(), word) == known.end()) {
      throw Usage{"the command " + quoted(join(*path, " ") + (path->empty() ? "" : " ") + word),
                  join_or(known), guess(word, known), "", join(*path, " ")};
    }
    path->push_back(word);
    app = app->get_subcommand(word);
  }
  return app;
}

// Returns the error for a word that is left over: neither an option of the command nor an argument
// that it takes.
Usage unexpected(const CLI::App& command, const Words& path, const std::string& word) {
  Usage usage{quoted(word), "", "", "", join(path, " ")};
  if (path.empty()) {
    usage.wanted = "a command first, and its options behind it";
  } else if (word.starts_with("-")) {
    Words names;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const std::string name = word.substr(0, word.find('='));
    usage.wanted = "one of " + join_or(names);
    usage.advice = guess(name, names);
  } else {
    usage.wanted = "no further argument";
  }
  return usage;
}

// Returns "FILE: any ELF shared object".
std::string described(const CLI::Option& option) {
  std::string text = option.get_description();
  text.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(text.front())));
  return option.get_name() + ": " + text;
}

// Translates CLI11's error into the words of this command.
Usage explain_error(const CLI::App& command, const Words& path, const CLI::ParseError& error) {
  Words left = command.remaining();
  std::erase(left, "--");
  const auto option = std::find_if(left.begin(), left.end(),
                                   [](const std::string& word) { return word.starts_with("-"); });
  if (option != left.end()) return unexpected(command, path, *option);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !left.empty()) {
    return unexpected(command, path, left.front());
  }
  const std::string text = error.what();
  const std::string name = text.substr(0, text.find_first_of(": "));
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    for (const CLI::Option* wanted : command.get_options()) {
      if (!wanted->get_required() || wanted->count() != 0) continue;
      return {"no " + wanted->get_name(), described(*wanted), "", "", join(path, " ")};
    }
    return {"no command", join_or(names_of(command)), "", "", join(path, " ")};
  }
  if (dynamic_cast<const CLI::RequiresError*>(&error) != nullptr) {
    const std::string other = text.substr(text.rfind(' ') + 1);
    return {name + " without " + other, "both or neither", "", "", join(path, " ")};
  }
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) {
    const std::string other = text.substr(text.rfind(' ') + 1);
    return {name + " with " + other, "one of the two", "", "", join(path, " ")};
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const bool is_missing = text.ends_with("missing");
    return {is_missing ? "nothing behind it" : "it more than once",
            is_missing ? "a value" : "it once", "", name, join(path, " ")};
  }
  return {text, "", "", "", join(path, " ")};
}

std::string one_line(const std::string& text) {
  std::string line = text;
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

OptionInfo describe(const CLI::Option& option) {
  OptionInfo info;
  for (const std::string& name : option.get_snames()) info.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) info.names.push_back("--" + name);
  info.text = one_line(option.get_description());
  info.required = option.get_required();
  info.many = option.get_expected_max() > 1;
  if (option.get_items_expected_max() == 0) return info;
  info.value = info.names.empty() ? option.get_name() : option.get_type_name();
  // Names of values are in capital letters; words that can be given are not.
  const std::string words = option.get_type_name();
  const bool has_choices = std::isupper(static_cast<unsigned char>(words.front())) == 0;
  for (size_t begin = 0; has_choices && begin < words.size();) {
    const size_t end = std::min(words.find('|', begin), words.size());
    info.choices.push_back(words.substr(begin, end - begin));
    begin = end + 1;
  }
  return info;
}

CommandInfo describe(const CLI::App& app) {
  CommandInfo info;
  info.name = app.get_name();
  info.text = one_line(app.get_description());
  // Commands have their parent's footer unless they set one.
  const CLI::App* const parent = app.get_parent();
  if (parent == nullptr || app.get_footer() != parent->get_footer()) info.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) info.options.push_back(describe(*option));
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    info.commands.push_back(describe(*command));
  }
  return info;
}

// The declarations, and the arguments that they write into.
struct Declared {
  Arguments args;
  CLI::App app{"Opdock finds, checks, loads and calls op plugins.", "opdock"};
  Declared() { declare_subcommands(&app, &args); }
};

}  // namespace

Arguments parse_command_line(int argc, const char* const* argv) {
  Declared declared;
  Arguments& args = declared.args;
  if (argc <= 1) {
    args.command = {"help"};
    return args;
  }
  Words path;
  CLI::App* const command = find_command(&declared.app, Words(argv + 1, argv + argc), &path);
  try {
    declared.app.parse(argc, argv);
  } catch (const CLI::CallForVersion&) {
    args.command = {"version"};
    return args;
  } catch (const CLI::CallForHelp&) {
    args.command = {"help"};
    args.words = path;
    return args;
  } catch (const CLI::ParseError& error) {
    throw explain_error(*command, path, error);
  } catch (Usage& usage) {
    usage.command = join(path, " ");
    throw;
  }
  args.command = path;
  return args;
}

CommandInfo describe_commands() {
  Declared declared;
  CommandInfo root = describe(declared.app);
  for (CommandInfo& command : root.commands) {
    if (command.name != "help") continue;
    for (OptionInfo& option : command.options) {
      if (option.names.empty()) option.choices = names_of(declared.app);
    }
  }
  return root;
}

std::string help_text(const Words& words) {
  Declared declared;
  Words path;
  const CLI::App* const command = find_command(&declared.app, words, &path);
  if (path.size() < words.size()) throw unexpected(*command, path, words[path.size()]);
  if (path.empty()) return command->help();
  path.pop_back();
  path.insert(path.begin(), "opdock");
  return command->help(join(path, " "));
}

}  // namespace opdock::cli
