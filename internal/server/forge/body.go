package forge

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/decide/envelope"
)

// ParseBody reads the body of a request by its content type ("" when absent), always as an object: what is neither JSON
// nor a form becomes {"body": text}, as does JSON that cannot be parsed, and a JSON value that is no object becomes
// {"value": v}. Bytes that are no UTF-8 are replaced, since one of the database engines would refuse them.
func ParseBody(body []byte, contentType string) json.RawMessage {
	return wrap(envelope.ParseBody(strings.ToValidUTF8(string(body), "\uFFFD"), contentType))
}

// ParseJSON reads a body that must be a JSON object whatever its content type says.
func ParseJSON(body []byte) (json.RawMessage, bool) {
	object := bytes.TrimSpace(bytes.ToValidUTF8(body, []byte("\uFFFD")))
	if len(object) == 0 || object[0] != '{' || !json.Valid(object) {
		return nil, false
	}
	return object, true
}

func wrap(value json.RawMessage) json.RawMessage {
	value = bytes.TrimSpace(value)
	if value[0] == '{' {
		return value
	}
	return append(append(json.RawMessage(`{"value":`), value...), '}')
}

// Headers lower-cases names and joins repeated headers.
func Headers(all map[string][]string) map[string]string {
	out := make(map[string]string, len(all))
	for name, values := range all {
		out[strings.ToLower(name)] = ci.CleanText(strings.Join(values, ", "))
	}
	return out
}

// Stripped leaves out the headers in strip. The content type always stays: without it the body could not be read again.
func Stripped(headers map[string]string, strip []string) map[string]string {
	out := maps.Clone(headers)
	for _, name := range strip {
		if name != "content-type" {
			delete(out, name)
		}
	}
	return out
}
