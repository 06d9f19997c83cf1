// Text of a shell script that keeps the location of each character and the causes of parts that only a shell knows.
#pragma once

#include "compiler/import/yaml/source_location.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::shell {

/// A location in a script. `file` points to a name that outlives all texts; null means no location.
struct Place {
  const std::string *file = nullptr;
  int line = 0, column = 0;
  SourceLocation location() const { return file ? SourceLocation{*file, line, column} : SourceLocation(); }
};

/// The reason why a value is unknown.
struct UnknownCause {
  std::string name;   ///< "$NODES", "the output of a command, $(nproc)"
  std::string remedy; ///< "give --env NODES=VALUE", or empty
  Place place;
  bool isNotGiven = false; ///< a variable or argument that has no value unless the user of the script gives one
  bool mayBeFlags = false; ///< the value differs between branches, and in one of them it begins with a dash
};
using Cause = std::shared_ptr<const UnknownCause>;

/// A byte string. A NUL byte, which no shell string can contain, stands for a part that is unknown.
class Text {
public:
  static constexpr char unknownByte = '\0';

  Text() = default;
  /// A text whose characters stand in one line from `place`.
  Text(std::string_view bytes, const Place &place);
  /// A text of one unknown part.
  Text(Cause cause, const Place &place);
  /// The text of a file. Omits NUL bytes, as bash does, and carriage returns at the ends of lines.
  static Text ofFile(std::string_view content, const std::string *file);

  const std::string &bytes() const { return content; }
  size_t size() const { return content.size(); }
  bool empty() const { return content.empty(); }
  char operator[](size_t at) const { return at < content.size() ? content[at] : ' '; }

  void append(const Text &more) { append(more, 0, more.size()); }
  /// Appends the characters from `begin` to `end` of another text.
  void append(const Text &from, size_t begin, size_t end);
  Text slice(size_t begin, size_t end) const;

  Place placeOf(size_t at) const;
  /// Returns the cause of the first unknown part, or null.
  Cause unknown() const;
  /// Returns whether the text is one unknown part, and nothing else.
  bool isUnknown() const { return content.size() == 1 && content[0] == unknownByte; }
  /// Returns the memory that the text takes, in bytes.
  size_t cost() const { return content.size() + marks.size() * sizeof(Mark) + 32; }

  /// Returns whether two texts have equal bytes and unknown parts of equal causes.
  bool operator==(const Text &other) const;

private:
  /// The place of the characters from `at` to the next mark. They stand in one line.
  struct Mark {
    size_t at = 0;
    Place place;
    Cause cause; ///< set if the character is an unknown part
  };
  const Mark *markOf(size_t at) const;
  void addMark(Mark mark);

  std::string content;
  std::vector<Mark> marks; ///< by ascending `at`
};

} // namespace espalier::shell
