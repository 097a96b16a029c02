package wire

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

// soil puts the ugly text wherever a value can hold one, down to the values of maps and the members of documents. A
// member with a fixed set of words has none of its own.
func soil(v reflect.Value, ugly string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(ugly)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		soil(v.Elem(), ugly)
	case reflect.Struct:
		for i := range v.NumField() {
			text := ugly
			if _, words, ok := strings.Cut(v.Type().Field(i).Tag.Get("wire"), "enum="); ok {
				text, _, _ = strings.Cut(words, "|")
				text, _, _ = strings.Cut(text, ",")
			}
			soil(v.Field(i), text)
		}
		if c, ok := v.Addr().Interface().(*Clause); ok {
			c.User = "" // it holds one of two
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(`{"` + ugly + `":["` + ugly + `"]}`))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		soil(v.Index(0), ugly)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		soil(key, ugly)
		soil(value, ugly)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Interface:
		v.Set(reflect.ValueOf(ugly))
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Bool:
	default:
		panic("a frame has a member of kind " + v.Kind().String() + ", which this test does not know")
	}
}

// unclean finds texts in a value that a database would refuse, by their place.
func unclean(v reflect.Value, place string) (found []string) {
	bad := func(s string) bool { return !utf8.ValidString(s) || strings.ContainsRune(s, 0) }
	switch v.Kind() {
	case reflect.String:
		if bad(v.String()) {
			found = append(found, place)
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return unclean(v.Elem(), place)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			found = append(found, unclean(v.Field(i), place+"."+v.Type().Field(i).Name)...)
		}
	case reflect.Slice:
		if raw, ok := v.Interface().(json.RawMessage); ok {
			if bad(string(raw)) || strings.Contains(string(raw), `\u0000`) { // which the reader of the document turns into NUL
				found = append(found, place)
			}
			return found
		}
		for i := range v.Len() {
			found = append(found, unclean(v.Index(i), fmt.Sprintf("%s[%d]", place, i))...)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			found = append(found, unclean(key, place+" key")...)
			found = append(found, unclean(v.MapIndex(key), place+" value")...)
		}
	}
	return found
}

// TestEveryTextOfEveryFrameOfAnAgentIsCleaned fills every member of every frame that an agent may send with texts that a
// database would refuse.
func TestEveryTextOfEveryFrameOfAnAgentIsCleaned(t *testing.T) {
	const mark = "UGLY"
	for name, typ := range fromAgent {
		t.Run(name, func(t *testing.T) {
			v := reflect.New(typ).Elem()
			soil(v, mark)
			clean, err := Encode(v.Interface().(Message))
			if err != nil {
				t.Fatal(err)
			}
			for _, ugly := range []string{`a\u0000b`, "a\xffc", "a\xed\xa0\x80d", `a\ud800`, "a\x00b"} {
				m, err := DecodeFromAgent([]byte(strings.ReplaceAll(string(clean), mark, ugly)))
				switch {
				case ugly == "a\x00b": // a bare control character is no JSON
					if err == nil && strings.Contains(string(clean), mark) {
						t.Errorf("%q is accepted", ugly)
					}
				case err != nil:
					t.Errorf("%q: %v", ugly, err)
				default:
					for _, place := range unclean(reflect.ValueOf(m), name) {
						t.Errorf("%q reaches the server in %s", ugly, place)
					}
				}
			}
		})
	}
}
