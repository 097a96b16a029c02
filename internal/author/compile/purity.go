package compile

import (
	"slices"
	"strings"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"
)

// pureGlobals are the built-ins that a function may use and still be evaluated by a server.
var pureGlobals = strings.Fields(`
	undefined NaN Infinity String Number Boolean Array Object JSON Math parseInt parseFloat isNaN isFinite
	encodeURIComponent decodeURIComponent encodeURI decodeURI`)

// maxPureText bounds the text of a function that a lock file quotes. A longer one is evaluated by an agent.
const maxPureText = 64 << 10

// pure reports whether a server may evaluate the function by its text alone: an arrow function or function expression
// without side effects that uses nothing but its parameters, its own const and let variables and a few built-ins.
// Parameters of functions inside it do not count as its own, as in every compiler of such lock files.
func pure(text string) bool {
	if len(text) > maxPureText {
		return false
	}
	ast, err := js.Parse(parse.NewInputString("("+text+")"), js.Options{})
	if err != nil || len(ast.List) != 1 {
		return false
	}
	stmt, ok := ast.List[0].(*js.ExprStmt)
	if !ok {
		return false
	}
	group, ok := stmt.Value.(*js.GroupExpr)
	if !ok {
		return false
	}
	v := &purity{ok: true, known: map[string]bool{}}
	switch f := group.X.(type) {
	case *js.ArrowFunc:
		v.function(f.Async, false, f.Params, &f.Body)
	case *js.FuncDecl:
		v.function(f.Async, f.Generator, f.Params, &f.Body)
	default:
		return false
	}
	return v.ok
}

// purity walks the body of one function. ok turns false at the first thing that is not allowed.
type purity struct {
	ok    bool
	known map[string]bool
}

func (p *purity) function(async, generator bool, params js.Params, body *js.BlockStmt) {
	if async || generator {
		p.ok = false
		return
	}
	p.declareAll(params)
	js.Walk(&declarations{p}, body)
	js.Walk(p, &params)
	js.Walk(p, body)
}

func (p *purity) declareAll(params js.Params) {
	for _, e := range params.List {
		p.declare(e.Binding)
	}
	p.declare(params.Rest)
}

// declare makes the names of a binding the function's own.
func (p *purity) declare(b js.IBinding) {
	switch b := b.(type) {
	case *js.Var:
		if b != nil {
			p.known[string(b.Name())] = true
		}
	case *js.BindingArray:
		for _, e := range b.List {
			p.declare(e.Binding)
		}
		p.declare(b.Rest)
	case *js.BindingObject:
		for _, item := range b.List {
			p.declare(item.Value.Binding)
		}
		p.declare(b.Rest)
	}
}

// declarations collects the const and let variables of a function, also those used before their line.
type declarations struct{ p *purity }

// Enter implements js.IVisitor.
func (d *declarations) Enter(n js.INode) js.IVisitor {
	if v, ok := n.(*js.VarDecl); ok && (v.TokenType == js.ConstToken || v.TokenType == js.LetToken) {
		for _, e := range v.List {
			d.p.declare(e.Binding)
		}
	}
	return d
}

// Exit implements js.IVisitor.
func (d *declarations) Exit(js.INode) {}

// Enter implements js.IVisitor.
func (p *purity) Enter(n js.INode) js.IVisitor {
	if !p.ok {
		return nil
	}
	switch n := n.(type) {
	case *js.ClassDecl, *js.NewExpr, *js.ThrowStmt, *js.TryStmt, *js.YieldExpr, *js.ImportStmt, *js.ImportMetaExpr,
		*js.NewTargetExpr, *js.WithStmt:
		p.ok = false
	case *js.VarDecl:
		p.ok = n.TokenType != js.VarToken
	case *js.UnaryExpr:
		p.ok = !slices.Contains(changingOperators, n.Op)
	case *js.BinaryExpr:
		p.ok = !assigns(n.Op)
	case *js.ForOfStmt:
		p.ok = !n.Await
	case *js.ArrowFunc:
		p.ok = !n.Async
	case *js.FuncDecl:
		p.ok = !n.Async && !n.Generator
	case *js.MethodDecl:
		p.ok = !n.Async && !n.Generator
	case *js.LiteralExpr:
		p.ok = n.TokenType != js.ThisToken && n.TokenType != js.SuperToken && n.TokenType != js.ImportToken
	case *js.DotExpr:
		js.Walk(p, n.X) // the name after the dot is no identifier of its own
		return nil
	case *js.Property:
		p.property(n)
		return nil
	case *js.Var:
		name := string(n.Name())
		p.ok = p.known[name] || slices.Contains(pureGlobals, name)
	}
	if !p.ok {
		return nil
	}
	return p
}

// Exit implements js.IVisitor.
func (p *purity) Exit(js.INode) {}

// property looks at a computed key and the value; a plain key is only a word.
func (p *purity) property(n *js.Property) {
	if n.Name != nil && n.Name.Computed != nil {
		js.Walk(p, n.Name.Computed)
	}
	if n.Value != nil {
		js.Walk(p, n.Value)
	}
	if n.Init != nil {
		js.Walk(p, n.Init)
	}
}

var changingOperators = []js.TokenType{
	js.DeleteToken, js.AwaitToken, js.PreIncrToken, js.PreDecrToken, js.PostIncrToken, js.PostDecrToken,
	js.IncrToken, js.DecrToken,
}

// assigns reports whether the operator is an assignment of any kind.
func assigns(op js.TokenType) bool {
	switch op {
	case js.EqToken, js.AddEqToken, js.SubEqToken, js.MulEqToken, js.DivEqToken, js.ModEqToken, js.ExpEqToken,
		js.LtLtEqToken, js.GtGtEqToken, js.GtGtGtEqToken, js.BitAndEqToken, js.BitOrEqToken, js.BitXorEqToken,
		js.AndEqToken, js.OrEqToken, js.NullishEqToken:
		return true
	}
	return false
}
