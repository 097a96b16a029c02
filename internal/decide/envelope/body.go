package envelope

import (
	"encoding/json"
	"net/url"
	"strings"

	"kici/internal/kit/jsontree"
)

// defaultEventType is the event type of a generic delivery that names none.
const defaultEventType = "default"

// ParseBody makes JSON of a request body. Without a content type, or with JSON's, it is JSON: objects and lists as they
// are, a scalar v as {"value":v}. A form becomes an object with the last value of each key. Everything else, and JSON
// that is none, becomes {"body":text}. A blank body is {}.
func ParseBody(text, contentType string) json.RawMessage {
	contentType = strings.ToLower(contentType)
	switch {
	case strings.TrimSpace(text) == "":
		return json.RawMessage("{}")
	case contentType == "" || strings.Contains(contentType, "application/json"):
		if !json.Valid([]byte(text)) {
			break
		}
		if first := strings.TrimSpace(text)[0]; first == '{' || first == '[' {
			return json.RawMessage(text)
		}
		return json.RawMessage(`{"value":` + text + `}`)
	case strings.Contains(contentType, "application/x-www-form-urlencoded"):
		if form, ok := parseForm(text); ok {
			return form
		}
	}
	return json.RawMessage(`{"body":` + jsontree.Quote(text) + `}`)
}

// parseForm keeps the order of the keys' first occurrence.
func parseForm(text string) (json.RawMessage, bool) {
	form, err := url.ParseQuery(text)
	if err != nil {
		return nil, false
	}
	var b strings.Builder
	b.WriteByte('{')
	written := map[string]bool{}
	for pair := range strings.SplitSeq(text, "&") {
		key, _, _ := strings.Cut(pair, "=")
		key, err := url.QueryUnescape(key)
		values := form[key]
		if err != nil || len(values) == 0 || written[key] {
			continue
		}
		if len(written) > 0 {
			b.WriteByte(',')
		}
		written[key] = true
		b.WriteString(jsontree.Quote(key) + ":" + jsontree.Quote(values[len(values)-1]))
	}
	b.WriteByte('}')
	return json.RawMessage(b.String()), true
}

// EventType finds the event type of a generic delivery: the configured header, the text at the configured path of the
// payload, the header x-event-type, or "default". The names in headers are in lower case.
func EventType(headers map[string]string, body json.RawMessage, header, path string) string {
	if v := headers[strings.ToLower(header)]; header != "" && v != "" {
		return v
	}
	if path != "" {
		if v, ok := Nested(body, path); ok {
			if s, isText := v.(string); isText && s != "" {
				return s
			}
		}
	}
	if v := headers["x-event-type"]; v != "" {
		return v
	}
	return defaultEventType
}

// Nested gives the value at a path of names with dots between, numbers leading into lists; `$.` may lead. ok is false
// where nothing is, or the body is no JSON.
func Nested(body json.RawMessage, path string) (v any, ok bool) {
	p, err := decodePayload(body)
	if err != nil {
		return nil, false
	}
	return p.get(dotPath(path)...)
}

// StripHeaders gives the headers without those named, whatever their case.
func StripHeaders(headers map[string]string, names []string) map[string]string {
	kept := map[string]string{}
	for name, value := range headers {
		strip := false
		for _, n := range names {
			strip = strip || strings.EqualFold(n, name)
		}
		if !strip {
			kept[name] = value
		}
	}
	return kept
}

// InboundRepo gives the repository that a payload names as owner/name, "" for none.
func InboundRepo(body json.RawMessage) string {
	p, err := decodePayload(body)
	if err != nil {
		return ""
	}
	for _, name := range []string{p.text("repository", "full_name"), p.text("repository")} {
		if strings.Contains(name, "/") {
			return name
		}
	}
	return ownerAndName(p)
}

// CommitMessage gives what people know the event by: the first line of the commit, or the title of the pull request or
// issue; "" for other events. The event's name is GitHub's.
func CommitMessage(event string, body json.RawMessage) string {
	p, err := decodePayload(body)
	if err != nil {
		return ""
	}
	switch event {
	case "push":
		line, _, _ := strings.Cut(p.text("head_commit", "message"), "\n")
		return line
	case "pull_request", "pull_request_review", "pull_request_review_comment":
		return p.text("pull_request", "title")
	case "issue_comment":
		return p.text("issue", "title")
	}
	return ""
}
