package store

import (
	"database/sql"
	"errors"
	"fmt"
	"reflect"
)

// assign stores a value of a column where a caller wants it: in a type of the same kind, in what takes any value by itself,
// or in a pointer that is nil for NULL.
func assign(to, value any) error {
	if scanner, ok := to.(sql.Scanner); ok {
		return scanner.Scan(value)
	}
	at := reflect.ValueOf(to)
	if at.Kind() != reflect.Pointer || at.IsNil() {
		return fmt.Errorf("%T is no place for a value", to)
	}
	return assignTo(at.Elem(), value)
}

func assignTo(to reflect.Value, value any) error {
	if to.Kind() == reflect.Pointer {
		if value == nil {
			to.SetZero()
			return nil
		}
		to.Set(reflect.New(to.Type().Elem()))
		return assign(to.Interface(), value)
	}
	isBytes := to.Kind() == reflect.Slice && to.Type().Elem().Kind() == reflect.Uint8
	switch v := value.(type) {
	case nil:
		if isBytes {
			to.SetZero()
			return nil
		}
		return fmt.Errorf("NULL cannot be stored in a %s", to.Type())
	case string:
		if to.Kind() == reflect.String {
			to.SetString(v)
			return nil
		}
		if isBytes {
			to.SetBytes([]byte(v))
			return nil
		}
	case []byte:
		if to.Kind() == reflect.String {
			to.SetString(string(v))
			return nil
		}
		if isBytes {
			to.SetBytes(v)
			return nil
		}
	case int64:
		return assignNumber(to, v)
	case float64:
		if to.CanFloat() {
			to.SetFloat(v)
			return nil
		}
	}
	return fmt.Errorf("a %T cannot be stored in a %s", value, to.Type())
}

var errOverflow = errors.New("the number is too large for its place")

func assignNumber(to reflect.Value, n int64) error {
	switch {
	case to.CanInt():
		if to.OverflowInt(n) {
			return errOverflow
		}
		to.SetInt(n)
	case to.CanFloat():
		to.SetFloat(float64(n))
	case to.Kind() == reflect.Bool && (n == 0 || n == 1):
		to.SetBool(n == 1)
	default:
		return fmt.Errorf("the number %d cannot be stored in a %s", n, to.Type())
	}
	return nil
}
