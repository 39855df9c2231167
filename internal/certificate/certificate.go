// Package certificate says when TLS certificates expire: as sentences, and as metrics.
package certificate

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"time"
)

// First returns the certificate of a chain that expires first, and with which the chain becomes useless; nil if there
// is none.
func First(chain []*x509.Certificate) (first *x509.Certificate) {
	for _, c := range chain {
		if first == nil || c != nil && c.NotAfter.Before(first.NotAfter) {
			first = c
		}
	}
	return first
}

// Parse returns the [First] certificate of a text in PEM form; nil if there is none that can be parsed.
func Parse(text []byte) *x509.Certificate {
	var chain []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return First(chain)
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil { // other blocks are keys
			chain = append(chain, c)
		}
	}
}

// ReadFile is [Parse] for a file; nil if it cannot be read.
func ReadFile(file string) *x509.Certificate {
	text, _ := os.ReadFile(file)
	return Parse(text)
}

// renewalDue is how long before its end a certificate should have been renewed.
const renewalDue = 14 * 24 * time.Hour

// Warning returns a sentence about what, such as "The client certificate", if it has expired or should have been
// renewed by now: two weeks before its end, or in the last third of a life that is shorter than six weeks. It is empty
// if there is nothing to say. The alert UnlockerCertificateExpires has the same rule.
func Warning(what string, c *x509.Certificate, now time.Time) string {
	if c == nil || c.NotAfter.Sub(now) >= min(renewalDue, c.NotAfter.Sub(c.NotBefore)/3) {
		return ""
	}
	return what + " " + Expiry(c, now)
}

// Expiry returns when the certificate expires: "expired at 2026-11-28 14:16:54 UTC".
func Expiry(c *x509.Certificate, now time.Time) string {
	verb := "expires"
	if now.After(c.NotAfter) {
		verb = "expired"
	}
	return verb + " at " + c.NotAfter.UTC().Format("2006-01-02 15:04:05") + " UTC"
}
