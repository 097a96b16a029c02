package forge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"kici/internal/core/ci"
)

// Body is a decoded payload.
type Body map[string]any

// DecodeBody decodes a payload, which must be an object.
func DecodeBody(payload json.RawMessage) (Body, error) {
	var b Body
	if err := json.Unmarshal(payload, &b); err != nil {
		return nil, fmt.Errorf("decode payload: %w", err)
	}
	if b == nil {
		return nil, fmt.Errorf("decode payload: null is no object")
	}
	return b, nil
}

// Value is what stands at a dot path, in which numbers index lists and a leading $. is skipped; nil when there is
// nothing.
func (b Body) Value(path string) any {
	var at any = map[string]any(b)
	for name := range strings.SplitSeq(strings.TrimPrefix(path, "$."), ".") {
		switch v := at.(type) {
		case map[string]any:
			at = v[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(v) {
				return nil
			}
			at = v[i]
		default:
			return nil
		}
	}
	return at
}

// Text is the text at a dot path, "" when there is none or something else.
func (b Body) Text(path string) string {
	s, _ := b.Value(path).(string)
	return s
}

// Repo is the repository that a payload of any forge speaks of: `owner/name`, or "" for none.
func (b Body) Repo() string {
	if name := b.Text("repository.full_name"); strings.Contains(name, "/") {
		return name
	}
	if name := b.Text("repository"); strings.Contains(name, "/") {
		return name
	}
	return b.OwnerAndName()
}

// OwnerAndName is the repository as owner and name apart tell it, "" for none.
func (b Body) OwnerAndName() string {
	owner, name := b.Text("repository.owner.login"), b.Text("repository.name")
	if owner == "" || name == "" {
		return ""
	}
	return owner + "/" + name
}

// CommitMessage is the line by which people know what an event of that name is about: of a commit its first line, of a
// pull request or issue its title.
func (b Body) CommitMessage(event string) string {
	switch event {
	case "push", "tag":
		line, _, _ := strings.Cut(b.Text("head_commit.message"), "\n")
		return line
	case "pull_request", "pull_request_review", "pull_request_review_comment", "review", "review_comment":
		return b.Text("pull_request.title")
	case "issue_comment", "comment":
		return b.Text("issue.title")
	}
	return ""
}

// ParseBody reads the body of a request by its content type ("" when absent). What is neither JSON nor a form becomes
// {"body": text}, and so does JSON that cannot be parsed; a JSON value that is no object becomes {"value": v}. Bytes
// that are no UTF-8 are replaced, since one of the database engines would refuse them.
func ParseBody(body []byte, contentType string) json.RawMessage {
	text := strings.ToValidUTF8(string(body), "\uFFFD")
	contentType = strings.ToLower(contentType)
	switch {
	case strings.TrimSpace(text) == "":
		return json.RawMessage(`{}`)
	case contentType == "" || strings.Contains(contentType, "application/json"):
		if value, ok := ParseJSON([]byte(text)); ok {
			return value
		}
	case strings.Contains(contentType, "application/x-www-form-urlencoded"):
		return encode(parseForm(text))
	}
	return encode(map[string]string{"body": text})
}

// ParseJSON reads a body that must be JSON, whatever its content type says. See ParseBody.
func ParseJSON(body []byte) (json.RawMessage, bool) {
	value := bytes.TrimSpace(bytes.ToValidUTF8(body, []byte("\uFFFD")))
	if !json.Valid(value) {
		return nil, false
	}
	if value[0] == '{' {
		return value, true
	}
	return encode(map[string]json.RawMessage{"value": value}), true
}

// parseForm is lenient, as browsers and senders are used to: what is not a valid escape stays as it is, and of a
// repeated name the last value counts.
func parseForm(text string) map[string]string {
	form := map[string]string{}
	for pair := range strings.SplitSeq(text, "&") {
		if pair != "" {
			name, value, _ := strings.Cut(pair, "=")
			form[unescape(name)] = unescape(value)
		}
	}
	return form
}

func unescape(s string) string {
	s = strings.ReplaceAll(s, "+", " ")
	if plain, err := url.PathUnescape(s); err == nil {
		return strings.ToValidUTF8(plain, "\uFFFD")
	}
	return s
}

// encode marshals maps of texts and of valid JSON, which cannot fail.
func encode(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return raw
}

// Headers lower-cases names and joins repeated headers, and leaves out those in strip. The content type always stays:
// without it the body could not be read again.
func Headers(all map[string][]string, strip []string) map[string]string {
	out := make(map[string]string, len(all))
	for name, values := range all {
		out[strings.ToLower(name)] = ci.CleanText(strings.Join(values, ", "))
	}
	for _, name := range strip {
		if name != "content-type" {
			delete(out, name)
		}
	}
	return out
}
