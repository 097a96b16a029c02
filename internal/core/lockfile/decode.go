package lockfile

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"

	"kici/internal/core/ci"
	"kici/internal/core/label"
	"kici/internal/kit/ecma"
	"kici/internal/kit/jsontree"
)

// decoder fills the types of this package from the tree, by the names in their json tags. null counts as absent everywhere.
// A member of the wrong JSON type is read as absent too and noted, so that whoever wants to run the workflow can refuse it
// and say why. Types that the document writes in forms of their own are readers.
type decoder struct {
	way      []step // to the value that is being read
	problems []string
}

// reader is what read fills from n. It tells whether there was a value; a pointer to one that there was not stays nil.
type reader interface {
	read(d *decoder, n *jsontree.Node) (taken bool)
}

// step is a member on the way, or with thing set a job or trigger, which messages begin with.
type step struct{ thing, name string }

func (d *decoder) enter(s step) { d.way = append(d.way, s) }
func (d *decoder) leave()       { d.way = d.way[:len(d.way)-1] }

// maxProblems bounds what one workflow notes; the first few tell all that a person needs.
const maxProblems = 20

func (d *decoder) wrong(n *jsontree.Node, wanted string) {
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, ci.CleanText(fmt.Sprintf("%s: expected %s, found %s", d.place(), wanted, n.Kind)))
	}
}

// place is the way from the last thing on, as in `job 'test' matrix.values.os`.
func (d *decoder) place() string {
	out := ""
	for _, s := range d.way {
		switch {
		case s.thing != "":
			out = s.thing + " '" + s.name + "' "
		case out == "" || strings.HasSuffix(out, " "):
			out += s.name
		default:
			out += "." + s.name
		}
	}
	return strings.TrimSuffix(out, " ")
}

func (d *decoder) err() error {
	if len(d.problems) == 0 {
		return nil
	}
	return errors.New(d.problems[0])
}

// is tells whether the value has the wanted type; null has none and is no problem.
func (d *decoder) is(n *jsontree.Node, kind jsontree.Kind) bool {
	if n.Kind != kind && n.Kind != jsontree.Null {
		d.wrong(n, kind.String())
	}
	return n.Kind == kind
}

// value fills v, which must be addressable.
func (d *decoder) value(v reflect.Value, n *jsontree.Node) (taken bool) {
	if to, ok := v.Addr().Interface().(reader); ok {
		return to.read(d, n)
	}
	switch v.Kind() {
	case reflect.Pointer:
		return n.Kind != jsontree.Null && d.pointer(v, n)
	case reflect.Struct:
		return d.members(v, n)
	case reflect.Slice:
		return d.list(v, n)
	}
	return d.scalar(v, n)
}

func (d *decoder) scalar(v reflect.Value, n *jsontree.Node) (taken bool) {
	switch v.Kind() {
	case reflect.String:
		if taken = d.is(n, jsontree.Text); taken {
			v.SetString(clean(n))
		}
	case reflect.Bool:
		if taken = d.is(n, jsontree.Bool); taken {
			v.SetBool(n.Truth)
		}
	case reflect.Float64:
		if taken = d.is(n, jsontree.Number); taken {
			v.SetFloat(n.Number())
		}
	default:
		if taken = d.is(n, jsontree.Number); taken {
			v.SetInt(d.whole(n))
		}
	}
	return taken
}

func (d *decoder) pointer(v reflect.Value, n *jsontree.Node) (taken bool) {
	to := reflect.New(v.Type().Elem())
	if taken = d.value(to.Elem(), n); taken {
		v.Set(to)
	}
	return taken
}

// fill reads the members of the struct that to points to.
func (d *decoder) fill(to any, n *jsontree.Node) (taken bool) {
	return d.members(reflect.ValueOf(to).Elem(), n)
}

func (d *decoder) members(v reflect.Value, n *jsontree.Node) (taken bool) {
	if !d.is(n, jsontree.Object) {
		return false
	}
	names := fieldsOf(v.Type())
	for i := range n.Items {
		if at, ok := names[n.Items[i].Key]; ok {
			d.member(v.FieldByIndex(at), &n.Items[i])
		}
	}
	return true
}

// member is value with the member's name on the way.
func (d *decoder) member(v reflect.Value, n *jsontree.Node) (taken bool) {
	d.enter(step{name: n.Key})
	defer d.leave()
	return d.value(v, n)
}

var matchersType = reflect.TypeFor[[]label.Matcher]()

func (d *decoder) list(v reflect.Value, n *jsontree.Node) (taken bool) {
	switch {
	case v.Type().Elem().Kind() == reflect.Uint8: // JSON that is kept as it stands
		if taken = n.Kind != jsontree.Null; taken {
			v.SetBytes([]byte(n.Raw))
		}
		return taken
	case v.Type() == matchersType:
		return d.matchers(v, n)
	case !d.is(n, jsontree.List):
		return false
	}
	out := reflect.MakeSlice(v.Type(), len(n.Items), len(n.Items))
	for i := range n.Items {
		if element := out.Index(i); element.Kind() == reflect.String {
			element.SetString(d.text(&n.Items[i]))
		} else {
			d.value(element, &n.Items[i])
		}
	}
	v.Set(out)
	return true
}

// matchers reads a list that the checks of Load have already accepted.
func (d *decoder) matchers(v reflect.Value, n *jsontree.Node) (taken bool) {
	if n.Falsy() || !d.is(n, jsontree.List) {
		return false
	}
	out := make([]label.Matcher, len(n.Items))
	for i := range n.Items {
		out[i], _ = matcher(&n.Items[i])
	}
	v.Set(reflect.ValueOf(out))
	return true
}

// text is an element of a list of texts, or the text of a number or truth value: authors of hand-written documents write
// 18 for "18".
func (d *decoder) text(n *jsontree.Node) string {
	switch n.Kind {
	case jsontree.Text:
		return clean(n)
	case jsontree.Number:
		return ecma.FormatNumber(n.Number())
	case jsontree.Bool:
		return fmt.Sprint(n.Truth)
	}
	d.wrong(n, jsontree.Text.String())
	return ""
}

// clean is the text without lone surrogates and NUL, which UTF-8 and the databases refuse.
func clean(n *jsontree.Node) string {
	if n.Dirty {
		return ci.CleanText(n.Text())
	}
	return n.Text()
}

func (d *decoder) whole(n *jsontree.Node) int64 {
	f := n.Number()
	if math.Abs(f) > 1<<53 { // beyond this a double is not exact, and the value is a mistake anyway
		d.wrong(n, "a number within ±2^53")
		return 0
	}
	return int64(f)
}

// fields keeps for each struct type the places of its fields by their names in the document.
var fields sync.Map // of reflect.Type → map[string][]int

func fieldsOf(t reflect.Type) map[string][]int {
	if known, ok := fields.Load(t); ok {
		return known.(map[string][]int)
	}
	names := map[string][]int{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			names[name] = f.Index
		}
	}
	fields.Store(t, names)
	return names
}

// unmarshal reads one JSON text as encoding/json asks for it. A member of the wrong type is an error.
func unmarshal(raw []byte, to reader) error {
	n, err := jsontree.Parse(string(raw))
	if err != nil {
		return err
	}
	var d decoder
	to.read(&d, n)
	return d.err()
}
