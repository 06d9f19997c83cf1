#include "runtime/plan_signature.h"

#include "messages/plan_error.h"
#include "runtime/digest.h"
#include "runtime/files/atomic_file.h"
#include "runtime/host_name.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <memory>
#include <openssl/evp.h>
#include <optional>
#include <pwd.h>
#include <span>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Context = std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)>;

constexpr size_t keyBytes = 32, signatureBytes = 64, mostName = 64;
/// Bytes that are read of a signature or a key, and of known_signers.
constexpr size_t mostLineBytes = 512, mostKnownBytes = 1 << 20;

std::string hexOf(std::span<const uint8_t> bytes) { return fmt::format("{:02x}", fmt::join(bytes, "")); }

std::optional<Bytes> fromHex(std::string_view text, size_t size) {
  if (text.size() != 2 * size)
    return std::nullopt;
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) {
    const char *begin = text.data() + 2 * i;
    auto [end, error] = std::from_chars(begin, begin + 2, bytes[i], 16);
    if (error != std::errc() || end != begin + 2)
      return std::nullopt;
  }
  return bytes;
}

/// A name and a key in one line.
struct NamedKey {
  std::string name;
  Bytes key;
};

bool isName(std::string_view name) {
  return !name.empty() && name.size() <= mostName && std::ranges::all_of(name, [](unsigned char c) {
    return c < 128 && (std::isalnum(c) || c == '.' || c == '_' || c == '-' || c == '@' || c == '+');
  });
}

/// Reads "NAME KEY". The name is printed, so it has no control characters.
std::optional<NamedKey> namedKeyIn(std::string_view line) {
  size_t space = line.find(' ');
  if (space == line.npos || !isName(line.substr(0, space)))
    return std::nullopt;
  std::optional<Bytes> key = fromHex(line.substr(space + 1), keyBytes);
  if (!key)
    return std::nullopt;
  return NamedKey{std::string(line.substr(0, space)), std::move(*key)};
}

/// Returns the first `most` bytes of a regular file, or an empty string.
std::string startOf(const fs::path &file, size_t most) {
  std::error_code error;
  if (!fs::is_regular_file(file, error))
    return "";
  std::ifstream stream(file, std::ios::binary);
  std::string text(most, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(most));
  text.resize(static_cast<size_t>(stream.gcount()));
  return text;
}

std::vector<std::string_view> linesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t end; !text.empty(); text.remove_prefix(std::min(text.size(), end + 1))) {
    end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
  }
  return lines;
}

/// Returns the user's folder of espalier; an empty path if the environment names none.
fs::path configFolder() {
  const char *config = std::getenv("XDG_CONFIG_HOME"), *home = std::getenv("HOME");
  if (config && *config == '/')
    return fs::path(config) / "espalier";
  return home && *home ? fs::path(home) / ".config" / "espalier" : fs::path();
}

fs::path keyFile() { return configFolder() / "signing_key"; }
fs::path knownFile() { return configFolder() / "known_signers"; }
fs::path signatureFile(const fs::path &plan) { return plan.string() + ".sig"; }

/// Returns USER@HOST of this process, without the characters that no name has.
std::string ownName() {
  const passwd *user = getpwuid(geteuid());
  std::string name = fmt::format("{}@{}", user ? user->pw_name : std::to_string(geteuid()), hostName());
  std::ranges::replace_if(name, [](char c) { return !isName(std::string(1, c)); }, '_');
  return name.substr(0, mostName);
}

Key privateKey(const NamedKey &own) {
  return {EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, own.key.data(), own.key.size()), EVP_PKEY_free};
}

Bytes publicKeyOf(EVP_PKEY *key) {
  Bytes bytes(keyBytes);
  size_t size = bytes.size();
  return EVP_PKEY_get_raw_public_key(key, bytes.data(), &size) == 1 ? bytes : Bytes();
}

/// Returns the user's key, if there is one.
std::optional<NamedKey> readOwnKey() {
  std::vector<std::string_view> lines;
  std::string text = configFolder().empty() ? "" : startOf(keyFile(), mostLineBytes);
  lines = linesOf(text);
  return lines.empty() ? std::nullopt : namedKeyIn(lines.front());
}

/// Makes the user's key unless another process does so first. Only the user may read it.
void makeOwnKey() {
  Key key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), EVP_PKEY_free);
  Bytes bytes(keyBytes);
  size_t size = bytes.size();
  if (!key || EVP_PKEY_get_raw_private_key(key.get(), bytes.data(), &size) != 1)
    return;
  std::error_code error;
  fs::create_directories(configFolder(), error);
  std::string draft = fmt::format("{}.{}", keyFile().string(), getpid());
  int file = open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file < 0)
    return;
  std::string line = fmt::format("{} {}\n", ownName(), hexOf(bytes));
  bool isWritten = write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size()) && fsync(file) == 0;
  close(file);
  if (isWritten)
    isWritten = link(draft.c_str(), keyFile().c_str()) == 0; // fails if the key exists
  unlink(draft.c_str());
}

/// The text that is signed.
std::string statementOf(std::string_view bytes) {
  return "espalier plan " + sha256({reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()});
}

const uint8_t *bytesOf(const std::string &text) { return reinterpret_cast<const uint8_t *>(text.data()); }

Bytes signatureOf(EVP_PKEY *key, const std::string &statement) {
  Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  Bytes signature(signatureBytes);
  size_t size = signature.size();
  bool isSigned = context && EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key) == 1 &&
                  EVP_DigestSign(context.get(), signature.data(), &size, bytesOf(statement), statement.size()) == 1;
  return isSigned ? signature : Bytes();
}

bool isSignedBy(const Bytes &key, const Bytes &signature, const std::string &statement) {
  Key signer(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key.data(), key.size()), EVP_PKEY_free);
  Context context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  return signer && context && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, signer.get()) == 1 &&
         EVP_DigestVerify(context.get(), signature.data(), signature.size(), bytesOf(statement), statement.size()) == 1;
}

bool isOwn(const Bytes &key) {
  std::optional<NamedKey> own = readOwnKey();
  return own && publicKeyOf(privateKey(*own).get()) == key;
}

/// Returns the name under which the user knows a key, or an empty string. It need not be the signer's own word.
std::string knownAs(const NamedKey &signer) {
  if (isOwn(signer.key))
    return signer.name;
  std::string text = configFolder().empty() ? "" : startOf(knownFile(), mostKnownBytes);
  for (std::string_view line : linesOf(text))
    if (std::optional<NamedKey> known = namedKeyIn(line); known && known->key == signer.key)
      return known->name;
  return "";
}

bool knowsAnybody() {
  std::error_code error;
  return !configFolder().empty() && (fs::exists(keyFile(), error) || fs::exists(knownFile(), error));
}

} // namespace

std::string signPlan(const fs::path &plan, std::string_view bytes) {
  std::error_code error;
  if (!fs::is_regular_file(plan, error))
    return "it is no regular file";
  fs::remove(signatureFile(plan), error);
  if (configFolder().empty())
    return "neither XDG_CONFIG_HOME nor HOME names a folder for the key";
  if (!fs::exists(keyFile(), error))
    makeOwnKey();
  std::optional<NamedKey> own = readOwnKey();
  Key key = own ? privateKey(*own) : Key(nullptr, EVP_PKEY_free);
  if (!key)
    return fmt::format("{}: the key can be neither made nor read", keyFile().string());
  Bytes signature = signatureOf(key.get(), statementOf(bytes));
  try {
    writeWhole(signatureFile(plan),
               fmt::format("{} {}\n{}\n", own->name, hexOf(publicKeyOf(key.get())), hexOf(signature)), Flush::ToSystem);
  } catch (const std::exception &fault) {
    return fault.what();
  }
  return "";
}

PlanSigner signerOf(const fs::path &plan, std::string_view bytes) {
  fs::path file = signatureFile(plan);
  std::string text = startOf(file, mostLineBytes);
  if (text.empty())
    return {.fault = fmt::format("there is no signature {}", file.string())};
  std::vector<std::string_view> lines = linesOf(text);
  std::optional<NamedKey> signer = namedKeyIn(lines[0]);
  std::optional<Bytes> signature = lines.size() == 2 ? fromHex(lines[1], signatureBytes) : std::nullopt;
  if (!signer || !signature)
    return {.fault = fmt::format("{} is no signature", file.string())};
  if (!isSignedBy(signer->key, *signature, statementOf(bytes)))
    return {.fault = fmt::format("{} is the signature of another plan, or the plan was changed", file.string())};
  if (std::string known = knownAs(*signer); !known.empty())
    return {.name = known, .isKnown = true};
  return {.name = signer->name,
          .fault = fmt::format("it is signed by a key that calls itself {}; if you trust it, add it: head -1 {} >> {}",
                               signer->name, file.string(),
                               configFolder().empty() ? "~/.config/espalier/known_signers" : knownFile().string())};
}

OwnedPlan readSignedPlan(const fs::path &file, bool requiresSigner) {
  std::string bytes = readPlanBytes(file);
  OwnedPlan read{parsePlan(bytes, file), ""};
  PlanSigner signer = signerOf(file, bytes);
  if (signer.isKnown)
    return read;
  if (requiresSigner)
    throw PlanError(fmt::format("{}: --require-signed: nobody known here compiled it: {}; or compile it here",
                                file.string(), signer.fault));
  if (knowsAnybody())
    read.note = fmt::format("{}: nobody known here compiled it: {}; a plan is a program", file.string(), signer.fault);
  return read;
}

} // namespace espalier::rt
