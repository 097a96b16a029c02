package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Setting describes one setting, from the tags of its field:
//
//	key      key path in the file, joined to those of the structs around it with dots
//	env      variables, comma-separated; the first that is set counts
//	flag     name of the flag, where it is not that of the key
//	default  as a variable would have it
//	min, max bounds of a number, in the unit; without min a number is at least 0
//	enum     allowed texts, separated by "|"
//	unit     ms, s, days (time.Duration) or bytes (integers)
//	secret   "true" for values that are never shown
//	help     a sentence
//
// Fields may be strings, booleans, integers, floats, durations and lists of strings. Fields without key are left alone.
type Setting struct {
	Key     string
	Env     []string
	Flag    string
	Type    string // for people: "text", "true or false", "number", "bytes", "duration", "list"
	Default string
	Min     string
	Max     string
	Enum    []string
	Unit    string
	Secret  bool
	Help    string
}

// Describe lists the settings of a struct, in the order of its fields, for help and documentation.
func Describe(settings any) []Setting {
	leaves := leavesOf(settings)
	out := make([]Setting, len(leaves))
	for i, f := range leaves {
		out[i] = f.Setting
	}
	return out
}

// leaf is a setting and the field that holds it.
type leaf struct {
	Setting
	value reflect.Value
}

func (f leaf) flagName() string {
	if f.Flag != "" {
		return f.Flag
	}
	return f.Key
}

func leavesOf(settings any) []leaf {
	v := reflect.ValueOf(settings)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		panic("config: settings must be a pointer to a struct") // a mistake in the program
	}
	var out []leaf
	walk(v.Elem(), "", &out)
	return out
}

func walk(v reflect.Value, prefix string, out *[]leaf) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		key, tagged := field.Tag.Lookup("key")
		if !tagged {
			continue
		}
		if field.Type.Kind() == reflect.Struct {
			walk(v.Field(i), prefix+key+".", out)
			continue
		}
		*out = append(*out, leaf{Setting: describe(field, prefix+key), value: v.Field(i)})
	}
}

func describe(field reflect.StructField, key string) Setting {
	tag := field.Tag
	s := Setting{
		Key: key, Env: split(tag.Get("env"), ","), Flag: tag.Get("flag"), Default: tag.Get("default"),
		Min: tag.Get("min"), Max: tag.Get("max"), Enum: split(tag.Get("enum"), "|"), Unit: tag.Get("unit"),
		Secret: tag.Get("secret") == "true", Help: tag.Get("help"),
	}
	s.Type = typeName(field, s.Unit)
	if _, given := tag.Lookup("min"); !given && s.Type != "text" && s.Type != "list" && s.Type != "true or false" {
		s.Min = "0"
	}
	return s
}

func typeName(field reflect.StructField, unit string) string {
	switch {
	case field.Type == reflect.TypeFor[time.Duration]():
		return "duration"
	case field.Type == reflect.TypeFor[[]string]():
		return "list"
	case unit == "bytes":
		return "bytes"
	}
	switch field.Type.Kind() {
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "number"
	case reflect.Float64:
		return "fraction"
	}
	panic(fmt.Sprintf("config: field %s has type %s, which no setting can have", field.Name, field.Type)) // a mistake in the program
}

func split(s, separator string) []string {
	var out []string
	for part := range strings.SplitSeq(s, separator) {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
