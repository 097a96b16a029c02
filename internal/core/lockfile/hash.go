package lockfile

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"

	"kici/internal/kit/jsontree"
)

// WorkflowHash is the contentHash of a workflow: it ties the compiled document to the text of the workflow's entry file
// and to the assets that the author listed. schema is CompileSchemaVersion except for documents of older compilers. Line
// ends do not matter, so a checkout with CR LF has the same hash.
func WorkflowHash(source string, schema int, assetDigest string) string {
	text := strconv.Itoa(schema) + ":" + lineFeeds(decoded(source))
	if assetDigest != "" {
		text += "\x00" + lineFeeds(decoded(assetDigest))
	}
	return sum(text)
}

// decoded is the text that a reader of UTF-8 finds in the bytes of a file. What is malformed becomes U+FFFD by the rule of
// the Encoding Standard, one for each longest beginning of a character, since other compilers and agents hash the text
// that such a decoder gives them. A byte order mark stays.
func decoded(raw string) string {
	if utf8.ValidString(raw) {
		return raw
	}
	text, _ := unicode.UTF8.NewDecoder().String(raw) // it replaces and never fails
	return text
}

func lineFeeds(s string) string {
	if !strings.Contains(s, "\r") {
		return s
	}
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
}

func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:])
}

// FileHash is the contentHash of a document, given as its JSON text: version, source and workflows take part, as
// ECMAScript would write them compactly. It is informational; nobody verifies it.
func FileHash(lock []byte) (string, error) {
	root, err := jsontree.Parse(string(lock))
	if err != nil {
		return "", fmt.Errorf("hash lock file: %w", err)
	}
	if root.Kind != jsontree.Object {
		return "", errors.New("hash lock file: not an object")
	}
	covered := jsontree.Node{Kind: jsontree.Object}
	for _, key := range []string{"schemaVersion", "source", "workflows"} {
		if m := root.Member(key); m != nil {
			covered.Items = append(covered.Items, *m)
		}
	}
	return sum(string(covered.Append(nil, ""))), nil
}

// DepLockHash is the lockfileHash of a package manager's lock file: the key of the dependency cache. prefix is one of
// those that FindDepLock returns; the line ends of the content stay.
func DepLockHash(prefix, content string) string { return sum(prefix + "\n" + decoded(content)) }

// depLocks are the candidates in the order of preference. A lock of npm counts only below .kici: the root's belongs to
// the repository's own code.
var depLocks = []string{
	"pnpm-lock.yaml", ".kici/pnpm-lock.yaml", "yarn.lock", ".kici/yarn.lock", ".kici/package-lock.json",
}

// FindDepLock returns the first package manager's lock file of the repository and the prefix for its hash. ok is false
// when there is none. A candidate that exists and cannot be read is an error, since passing it over would change the
// cache key silently.
func FindDepLock(fsys fs.FS) (prefix, content string, ok bool, err error) {
	for _, name := range depLocks {
		raw, err := fs.ReadFile(fsys, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", "", false, fmt.Errorf("read %s: %w", name, err)
		}
		return depLockPrefix(name, string(raw)), string(raw), true, nil
	}
	return "", "", false, nil
}

// depLockPrefix tells the two formats of yarn.lock apart by the metadata block that only the later one has.
func depLockPrefix(name, content string) string {
	switch path.Base(name) {
	case "pnpm-lock.yaml":
		return "pnpm"
	case "package-lock.json":
		return "npm"
	}
	if strings.HasPrefix(content, "__metadata:") || strings.Contains(content, "\n__metadata:") {
		return "yarn-berry"
	}
	return "yarn-classic"
}
