package envelope

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"kici/internal/kit/ecma"
)

// payload is a decoded body. Numbers stay as written, since ids may be beyond what a float holds.
type payload struct{ root any }

func decodePayload(raw json.RawMessage) (payload, error) {
	if len(bytes.TrimSpace(raw)) == 0 {
		return payload{map[string]any{}}, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var p payload
	if err := d.Decode(&p.root); err != nil {
		return payload{}, fmt.Errorf("read payload: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return payload{}, errors.New("read payload: more follows the JSON value")
	}
	return p, nil
}

// get follows names, and numbers into lists.
func (p payload) get(names ...string) (any, bool) {
	v := p.root
	for _, name := range names {
		switch at := v.(type) {
		case map[string]any:
			member, ok := at[name]
			if !ok {
				return nil, false
			}
			v = member
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(at) {
				return nil, false
			}
			v = at[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// text gives the text at the names, "" for anything else.
func (p payload) text(names ...string) string {
	v, _ := p.get(names...)
	s, _ := v.(string)
	return s
}

// first gives the first text that is not empty.
func (p payload) first(paths ...[]string) string {
	for _, names := range paths {
		if s := p.text(names...); s != "" {
			return s
		}
	}
	return ""
}

// id gives a number in decimal or a text as it is.
func (p payload) id(names ...string) string {
	v, _ := p.get(names...)
	switch v := v.(type) {
	case string:
		return v
	case json.Number:
		if _, err := v.Int64(); err == nil {
			return v.String()
		}
		if f, err := v.Float64(); err == nil && !math.IsInf(f, 0) {
			return ecma.FormatNumber(f)
		}
	}
	return ""
}
