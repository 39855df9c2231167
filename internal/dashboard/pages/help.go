package pages

import "github.com/clustermutex/unlocker/internal/dashboard/site"

// ServeHelp explains the pages.
func (p *Pages) ServeHelp(r *site.Request) (site.Answer, error) {
	v := p.site.Page(r, "help")
	v.Here = "help"
	return p.site.Render("help", v)
}
