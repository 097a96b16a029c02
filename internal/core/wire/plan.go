package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"kici/internal/core/ci"
)

// A plan is how a struct is read, made once from its tags. The tag `json` names the member; the tag `wire` holds its
// rules, separated by commas:
//
//	opt         may be absent (else it is required)
//	null        may be null, which counts as absent
//	int         a number without a fraction, within the range that JavaScript holds exactly
//	min=N       a string of at least N bytes, a number of at least N
//	enum=a|b    one of these strings (for a map: its values)
//	object      raw JSON that is an object (for a map: its values)
//	url         an absolute URL
//	coerce      a number, or a string that holds one
type plan struct {
	fields   []field
	byName   map[string]int
	required uint64 // bit per field
	closed   bool   // an unknown member is an error
	checks   bool   // the type has rules across members
}

type field struct {
	name     string
	index    int
	nullable bool
	optional bool
	read     reader
}

// reader takes one value from the text into v.
type reader func(d *decoder, v reflect.Value) error

// checker is implemented by structs with rules across members; it names the member at fault.
type checker interface {
	check() (field string, err error)
}

// closer is implemented by structs that allow no unknown member.
type closer interface{ closed() }

// plans holds every plan made so far, by type. Each is made when its message is met first: an agent reads and writes few
// of them, and has little memory.
var plans sync.Map

func planOf(t reflect.Type) *plan {
	if p, ok := plans.Load(t); ok {
		return p.(*plan)
	}
	p, _ := plans.LoadOrStore(t, makePlan(t))
	return p.(*plan)
}

func makePlan(t reflect.Type) *plan {
	p := &plan{byName: map[string]int{}}
	zero := reflect.Zero(t).Interface()
	_, p.closed = zero.(closer)
	_, p.checks = zero.(checker)
	for i := range t.NumField() {
		sf := t.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		r := rulesOf(sf.Tag.Get("wire"))
		f := field{name: name, index: i, nullable: r.nullable, optional: r.optional, read: readerOf(sf.Type, r)}
		p.byName[name] = len(p.fields)
		if !f.optional {
			p.required |= 1 << len(p.fields)
		}
		p.fields = append(p.fields, f)
	}
	if len(p.fields) > 64 {
		panic(fmt.Sprintf("message %s has more members than the mask of the required ones has bits", t))
	}
	return p
}

// document reads the whole text as one object.
func (d *decoder) document(p *plan, v reflect.Value) error {
	d.depth = 0
	if err := p.read(d, v); err != nil {
		return err
	}
	return d.end()
}

func (p *plan) read(d *decoder, v reflect.Value) error {
	if d.peek() != '{' {
		return invalid("expected an object")
	}
	seen := uint64(0)
	err := d.members(func(name string) error {
		i, ok := p.byName[name]
		if !ok {
			if p.closed {
				return in(name, invalid("is not allowed"))
			}
			return d.skip()
		}
		f := &p.fields[i]
		if f.nullable && d.peek() == 'n' {
			return d.word("null")
		}
		seen |= 1 << i
		return in(name, f.read(d, v.Field(f.index)))
	})
	if err != nil {
		return err
	}
	if missing := p.required &^ seen; missing != 0 {
		for i := range p.fields {
			if missing&(1<<i) != 0 {
				return in(p.fields[i].name, invalid("is required"))
			}
		}
	}
	return p.check(v)
}

func (p *plan) check(v reflect.Value) error {
	if !p.checks {
		return nil
	}
	if name, err := v.Interface().(checker).check(); err != nil {
		return in(name, invalid(err.Error()))
	}
	return nil
}

// fill makes required lists, maps and objects that are nil empty ones, so that none is encoded as null.
func (p *plan) fill(v reflect.Value) {
	for i := range p.fields {
		f := &p.fields[i]
		fv := v.Field(f.index)
		switch {
		case fv.Kind() == reflect.Struct:
			planOf(fv.Type()).fill(fv)
		case f.optional:
		case fv.Type() == rawType && fv.IsNil():
			fv.SetBytes([]byte("{}"))
		case fv.Kind() == reflect.Slice && fv.IsNil():
			fv.Set(reflect.MakeSlice(fv.Type(), 0, 0))
		}
	}
}

func invalid(problem string) error { return &InvalidError{Problem: problem} }

// in puts a member's name in front of the path of an error.
func in(name string, err error) error {
	if bad, ok := errors.AsType[*InvalidError](err); ok {
		if bad.Field == "" {
			bad.Field = name
		} else {
			bad.Field = name + "." + bad.Field
		}
	}
	return err
}

type rules struct {
	optional, nullable, integer, object, url, coerce bool

	min  *float64
	enum []string
}

func rulesOf(tag string) (r rules) {
	for word := range strings.SplitSeq(tag, ",") {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "":
		case "opt":
			r.optional = true
		case "null":
			r.nullable = true
		case "int":
			r.integer = true
		case "object":
			r.object = true
		case "url":
			r.url = true
		case "coerce":
			r.coerce = true
		case "min":
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				panic("bad bound in tag " + tag)
			}
			r.min = &n
		case "enum":
			r.enum = strings.Split(value, "|")
		default:
			panic("unknown rule in tag " + tag)
		}
	}
	return r
}

var (
	rawType = reflect.TypeFor[json.RawMessage]()
	anyType = reflect.TypeFor[any]()

	namespacedType = reflect.TypeFor[ci.NamespacedSecrets]()
)

// readerOf chooses how values of a type are read. A type that no message has is a mistake of the programmer.
func readerOf(t reflect.Type, r rules) reader {
	switch {
	case t == rawType:
		return r.readRaw
	case t == anyType:
		return readScalar
	case t == namespacedType:
		return readNamespaced()
	}
	switch t.Kind() {
	case reflect.String:
		return r.readString
	case reflect.Bool:
		return readBool
	case reflect.Int, reflect.Int64, reflect.Float64:
		return r.readNumber
	case reflect.Pointer:
		return pointerReader(t, r)
	case reflect.Slice:
		return sliceReader(t, r)
	case reflect.Map:
		return mapReader(t, r)
	case reflect.Struct:
		return planOf(t).read
	}
	panic("no reader for " + t.String())
}

func (r rules) readString(d *decoder, v reflect.Value) error {
	if d.peek() != '"' {
		return invalid("expected a string")
	}
	s, err := d.str()
	if err != nil {
		return err
	}
	switch {
	case r.enum != nil && !slices.Contains(r.enum, s):
		return invalid("expected one of " + strings.Join(r.enum, ", "))
	case r.min != nil && float64(len(s)) < *r.min:
		return invalid("is too short")
	case r.url && !absoluteURL(s):
		return invalid("expected a URL")
	}
	v.SetString(s)
	return nil
}

func absoluteURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme != "" && (u.Host != "" || u.Opaque != "" || u.Path != "")
}

func readBool(d *decoder, v reflect.Value) error {
	switch d.peek() {
	case 't':
		v.SetBool(true)
		return d.word("true")
	case 'f':
		v.SetBool(false)
		return d.word("false")
	}
	return invalid("expected true or false")
}

// maxSafe is the largest whole number up to which JavaScript tells every number from its neighbours.
const maxSafe = 1<<53 - 1

func (r rules) readNumber(d *decoder, v reflect.Value) error {
	f, err := r.takeNumber(d)
	if err != nil {
		return err
	}
	switch {
	case math.IsInf(f, 0):
		return invalid("is out of range")
	case r.integer && (f != math.Trunc(f) || math.Abs(f) > maxSafe):
		return invalid("expected a whole number")
	case r.min != nil && f < *r.min:
		return invalid("is too small")
	}
	if v.Kind() == reflect.Float64 {
		v.SetFloat(f)
		return nil
	}
	// Numbers may have fractions where no rule forbids it (clocks of JavaScript do): they are cut. Beyond the safe range
	// a conversion to an integer would be undefined.
	v.SetInt(int64(min(max(f, -maxSafe), maxSafe)))
	return nil
}

func (r rules) takeNumber(d *decoder) (float64, error) {
	c := d.peek()
	if c == '-' || c-'0' < 10 {
		return d.number()
	}
	if c != '"' || !r.coerce {
		return 0, invalid("expected a number")
	}
	s, err := d.str()
	if err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsNaN(f) {
		return 0, invalid("expected a number")
	}
	return f, nil
}

func (r rules) readRaw(d *decoder, v reflect.Value) error {
	if d.peek() != '{' && r.object {
		return invalid("expected an object")
	}
	raw, err := d.raw()
	if err != nil {
		return err
	}
	v.SetBytes(raw)
	return nil
}

// readNamespaced reads the secrets of contexts in the order in which they stand.
func readNamespaced() reader {
	read := mapReader(reflect.TypeFor[map[string]string](), rules{})
	return func(d *decoder, v reflect.Value) error {
		if d.peek() != '{' {
			return invalid("expected an object")
		}
		n := ci.NamespacedSecrets{}
		defer func() { v.Set(reflect.ValueOf(n)) }()
		return d.members(func(name string) error {
			var secrets map[string]string
			if err := read(d, reflect.ValueOf(&secrets).Elem()); err != nil {
				return in(name, err)
			}
			n = n.Put(name, secrets)
			return nil
		})
	}
}

// readScalar reads a string, number or boolean into an interface.
func readScalar(d *decoder, v reflect.Value) error {
	switch c := d.peek(); {
	case c == '"':
		s, err := d.str()
		if err != nil {
			return err
		}
		v.Set(reflect.ValueOf(s))
	case c == 't' || c == 'f':
		v.Set(reflect.ValueOf(c == 't'))
		return d.skip()
	case c == '-' || c-'0' < 10:
		f, err := d.number()
		if err != nil {
			return err
		}
		v.Set(reflect.ValueOf(f))
	default:
		return invalid("expected a string, a number or a boolean")
	}
	return nil
}

func pointerReader(t reflect.Type, r rules) reader {
	read := readerOf(t.Elem(), r)
	return func(d *decoder, v reflect.Value) error {
		v.Set(reflect.New(t.Elem()))
		return read(d, v.Elem())
	}
}

func sliceReader(t reflect.Type, r rules) reader {
	if t.Elem().Kind() == reflect.String {
		return readStrings
	}
	read := readerOf(t.Elem(), r)
	return func(d *decoder, v reflect.Value) error {
		if d.peek() != '[' {
			return invalid("expected a list")
		}
		v.Set(reflect.MakeSlice(t, 0, 0))
		return d.elements(func() error {
			v.Set(reflect.Append(v, reflect.Zero(t.Elem())))
			return read(d, v.Index(v.Len()-1))
		})
	}
}

// readStrings is the reader of log lines, so it goes around reflection.
func readStrings(d *decoder, v reflect.Value) error {
	if d.peek() != '[' {
		return invalid("expected a list")
	}
	// Chunks of our agents hold up to 50 lines; longer lists grow.
	list := make([]string, 0, 8)
	err := d.elements(func() error {
		if d.peek() != '"' {
			return invalid("expected a string")
		}
		s, err := d.str()
		list = append(list, s)
		return err
	})
	v.Set(reflect.ValueOf(list))
	return err
}

func mapReader(t reflect.Type, r rules) reader {
	read := readerOf(t.Elem(), r)
	return func(d *decoder, v reflect.Value) error {
		if d.peek() != '{' {
			return invalid("expected an object")
		}
		v.Set(reflect.MakeMap(t))
		value := reflect.New(t.Elem()).Elem()
		return d.members(func(name string) error {
			value.SetZero()
			if err := read(d, value); err != nil {
				return in(name, err)
			}
			v.SetMapIndex(reflect.ValueOf(name), value)
			return nil
		})
	}
}
