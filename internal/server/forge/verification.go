package forge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// The methods by which a source verifies its deliveries.
const (
	MethodHMAC   = "hmac_sha256"
	MethodBearer = "bearer_token"
	MethodAPIKey = "api_key"
	MethodIP     = "ip_allowlist"
	MethodNone   = "none"
)

// masked stands for a secret wherever a verification is shown. Sent back unchanged it keeps the stored secret.
const masked = "***"

// Verification is how deliveries of a source are proven. Only the fields of its method are set.
type Verification struct {
	Method string
	// Secret is the HMAC secret, the token or the key. Next, when set, is accepted as well: it lets a sender change
	// over without a delivery lost.
	Secret string
	Next   string
	Header string // lower case; where the signature, token or key is sent
	// Allowlist holds single addresses, compared as text, and Ranges networks in CIDR form.
	Allowlist []string
	Ranges    []string
}

// fieldsOf names the members of a method's configuration: secret, next secret and header. Where two names are listed
// the second is an accepted alias.
var fieldsOf = map[string]struct{ secret, next, header []string }{
	MethodHMAC:   {[]string{"secret"}, []string{"secretNext"}, []string{"headerName"}},
	MethodBearer: {[]string{"token"}, []string{"tokenNext"}, []string{"headerName"}},
	MethodAPIKey: {[]string{"key"}, []string{"keyNext"}, []string{"header", "headerName"}},
}

var defaultHeader = map[string]string{
	MethodHMAC: "x-signature-256", MethodBearer: "authorization", MethodAPIKey: "x-api-key",
}

// ParseVerification reads a verification configuration as operators write it; nil or {} is enough for MethodNone. The
// error is an InvalidError that names every wrong member.
func ParseVerification(method string, config json.RawMessage) (Verification, error) {
	var problems InvalidError
	v := parseVerification(method, config, &problems)
	if problems != nil {
		return Verification{}, problems
	}
	return v, nil
}

func parseVerification(method string, config json.RawMessage, problems *InvalidError) Verification {
	members := configMembers{left: map[string]json.RawMessage{}, problems: problems}
	if raw := bytes.TrimSpace(config); len(raw) > 0 && string(raw) != "null" {
		if err := json.Unmarshal(raw, &members.left); err != nil {
			problems.add("verificationConfig", "must be an object")
			return Verification{}
		}
	}
	v := Verification{Method: method}
	switch method {
	case MethodHMAC, MethodBearer, MethodAPIKey:
		names := fieldsOf[method]
		v.Secret, v.Next = members.text(names.secret...), members.text(names.next...)
		v.Header = strings.ToLower(members.text(names.header...))
	case MethodIP:
		for _, entry := range members.texts("allowlist", "allowedIps") {
			v.allow(entry)
		}
	case MethodNone:
	default:
		problems.add("verificationMethod", "must be one of %s, %s, %s, %s, %s", MethodHMAC, MethodBearer, MethodAPIKey, MethodIP, MethodNone)
		return v
	}
	members.refuseRest(method)
	v.check(problems)
	return v
}

// allow sorts an entry into addresses and ranges. Writing an address in its canonical form here is what lets the
// comparison be one of texts.
func (v *Verification) allow(entry string) {
	if prefix, err := netip.ParsePrefix(entry); err == nil {
		v.Ranges = append(v.Ranges, prefix.Masked().String())
		return
	}
	if addr, err := netip.ParseAddr(entry); err == nil {
		entry = addr.Unmap().String()
	}
	v.Allowlist = append(v.Allowlist, entry)
}

func (v *Verification) check(problems *InvalidError) {
	switch v.Method {
	case MethodHMAC, MethodBearer, MethodAPIKey:
		names := fieldsOf[v.Method]
		if v.Secret == "" {
			problems.add("verificationConfig."+names.secret[0], "is required for %s", v.Method)
		}
		if v.Header == "" {
			v.Header = defaultHeader[v.Method]
		}
		checkHeader(problems, "verificationConfig."+names.header[0], v.Header)
	case MethodIP:
		if len(v.Allowlist)+len(v.Ranges) == 0 {
			problems.add("verificationConfig.allowlist", "must list at least one address or range")
		}
		for _, entry := range v.Allowlist {
			if _, err := netip.ParseAddr(entry); err != nil {
				problems.add("verificationConfig.allowlist", "%q is neither an address nor a range such as 10.0.0.0/8", entry)
			}
		}
	}
}

// Config is the configuration as operators read it, with the secrets masked.
func (v Verification) Config() map[string]any {
	if v.Secret != "" {
		v.Secret = masked
	}
	if v.Next != "" {
		v.Next = masked
	}
	return v.config()
}

func (v Verification) config() map[string]any {
	out := map[string]any{}
	switch v.Method {
	case MethodHMAC, MethodBearer, MethodAPIKey:
		names := fieldsOf[v.Method]
		out[names.secret[0]], out[names.header[0]] = v.Secret, v.Header
		if v.Next != "" {
			out[names.next[0]] = v.Next
		}
	case MethodIP:
		out["allowlist"] = append(append([]string{}, v.Allowlist...), v.Ranges...)
	}
	return out
}

// keepMasked puts the stored secrets where a client sent back the mask that it had been shown.
func (v *Verification) keepMasked(stored Verification) {
	if v.Method != stored.Method {
		return
	}
	if v.Secret == masked {
		v.Secret = stored.Secret
	}
	if v.Next == masked {
		v.Next = stored.Next
	}
}

// configMembers takes known members out of a configuration, so that what is left is unknown.
type configMembers struct {
	left     map[string]json.RawMessage
	problems *InvalidError
}

func (m configMembers) take(names []string) (name string, raw json.RawMessage) {
	for _, name := range names {
		if raw, ok := m.left[name]; ok {
			delete(m.left, name)
			return name, raw
		}
	}
	return "", nil
}

// text is the member of the first name that is there, "" when none is.
func (m configMembers) text(names ...string) string {
	name, raw := m.take(names)
	if raw == nil || string(raw) == "null" {
		return ""
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil || len(s) > maxFieldText {
		m.problems.add("verificationConfig."+name, "must be a text of at most %d bytes", maxFieldText)
	}
	return s
}

func (m configMembers) texts(names ...string) []string {
	name, raw := m.take(names)
	if raw == nil {
		return nil
	}
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil || len(list) > maxListEntries {
		m.problems.add("verificationConfig."+name, "must be a list of at most %d texts", maxListEntries)
	}
	return list
}

// refuseRest names members that the method does not have: a mistyped name would otherwise weaken the verification
// silently.
func (m configMembers) refuseRest(method string) {
	for name := range m.left {
		m.problems.add("verificationConfig."+name, "is unknown; %s takes %s", method, memberNames(method))
	}
}

func memberNames(method string) string {
	switch names, ok := fieldsOf[method]; {
	case ok:
		return fmt.Sprintf("%s, %s, %s", names.secret[0], names.next[0], names.header[0])
	case method == MethodIP:
		return "allowlist"
	}
	return "nothing"
}
