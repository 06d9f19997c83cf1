#include "compiler/import/shell/text.h"

#include <algorithm>

namespace espalier::shell {

Text::Text(std::string_view bytes, const Place &place) : content(bytes) {
  if (!bytes.empty())
    marks.push_back({0, place, nullptr});
}

Text::Text(Cause cause, const Place &place) : content(1, unknownByte) { marks.push_back({0, place, std::move(cause)}); }

Text Text::ofFile(std::string_view file, const std::string *name) {
  Text text;
  int line = 1, column = 1;
  bool isNew = true; // the next character needs a mark
  for (size_t i = 0; i < file.size(); ++i, ++column) {
    char c = file[i];
    if (c == unknownByte || (c == '\r' && i + 1 < file.size() && file[i + 1] == '\n')) {
      isNew = true;
      continue;
    }
    if (isNew)
      text.marks.push_back({text.content.size(), {name, line, column}, nullptr});
    text.content += c;
    if ((isNew = c == '\n')) {
      ++line;
      column = 0;
    }
  }
  return text;
}

const Text::Mark *Text::markOf(size_t at) const {
  auto after = std::upper_bound(marks.begin(), marks.end(), at,
                                [](size_t position, const Mark &mark) { return position < mark.at; });
  return after == marks.begin() ? nullptr : &*std::prev(after);
}

Place Text::placeOf(size_t at) const {
  const Mark *mark = markOf(content.empty() ? 0 : std::min(at, content.size() - 1));
  if (!mark)
    return {};
  Place place = mark->place;
  place.column += static_cast<int>(at - mark->at);
  return place;
}

void Text::addMark(Mark mark) {
  if (!marks.empty() && !mark.cause && !marks.back().cause) {
    const Mark &last = marks.back();
    bool continues = mark.place.file == last.place.file && mark.place.line == last.place.line &&
                     mark.place.column == last.place.column + static_cast<int>(mark.at - last.at);
    if (continues)
      return;
  }
  marks.push_back(std::move(mark));
}

void Text::append(const Text &from, size_t begin, size_t end) {
  if (&from == this)
    return append(Text(from), begin, end);
  end = std::min(end, from.size());
  if (begin >= end)
    return;
  size_t shift = content.size();
  const Mark *mark = from.markOf(begin);
  if (mark)
    addMark({shift, from.placeOf(begin), mark->cause});
  for (mark = mark ? mark + 1 : from.marks.data(); mark < from.marks.data() + from.marks.size() && mark->at < end;
       ++mark)
    addMark({mark->at - begin + shift, mark->place, mark->cause});
  content.append(from.content, begin, end - begin);
}

Text Text::slice(size_t begin, size_t end) const {
  Text part;
  part.append(*this, begin, end);
  return part;
}

Cause Text::unknown() const {
  size_t at = content.find(unknownByte);
  const Mark *mark = at == std::string::npos ? nullptr : markOf(at);
  return mark ? mark->cause : nullptr;
}

bool Text::operator==(const Text &other) const {
  if (content != other.content)
    return false;
  for (size_t at = content.find(unknownByte); at != std::string::npos; at = content.find(unknownByte, at + 1)) {
    const Cause &mine = markOf(at)->cause, &theirs = other.markOf(at)->cause;
    if (mine != theirs && mine->name != theirs->name)
      return false;
  }
  return true;
}

} // namespace espalier::shell
