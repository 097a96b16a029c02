package adminapi

import (
	"bytes"
	"encoding/json"
	"strings"
)

// nulPlace finds a NUL character in a text of a JSON document, and gives the place of the text: the members that lead to
// it, joined by dots. One of the two database engines refuses it, whatever the text is compared or stored with.
func nulPlace(raw []byte) (place string, found bool) {
	if !bytes.Contains(raw, []byte(`\u0000`)) {
		return "", false
	}
	var doc any
	if json.Unmarshal(raw, &doc) != nil {
		return "", false // whoever reads it says what is wrong
	}
	path, found := nulIn(doc)
	return strings.Join(path, "."), found
}

func nulIn(v any) (path []string, found bool) {
	switch v := v.(type) {
	case string:
		return nil, strings.ContainsRune(v, 0)
	case []any:
		for _, item := range v {
			if path, found = nulIn(item); found {
				return path, true
			}
		}
	case map[string]any:
		for key, item := range v {
			if strings.ContainsRune(key, 0) {
				return nil, true
			}
			if path, found = nulIn(item); found {
				return append([]string{key}, path...), true
			}
		}
	}
	return nil, false
}
