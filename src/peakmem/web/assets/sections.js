/** The links of the header: which section is being read. */

export function sections() {
  const links = new Map([...document.querySelectorAll("header nav a")].map((link) => [link.getAttribute("href").slice(1), link]));
  const seen = new Set();
  const places = [...links.keys()];
  const mark = () => {
    const at = places.findLast((id) => seen.has(id)) ?? "";
    for (const [id, link] of links) {
      if (id === at) link.setAttribute("aria-current", "location");
      else link.removeAttribute("aria-current");
    }
  };
  // A section is read when it crosses a line in the upper third of the window.
  const watch = new IntersectionObserver((entries) => {
    for (const entry of entries) seen[entry.isIntersecting ? "add" : "delete"](entry.target.id);
    mark();
  }, { rootMargin: "-30% 0px -69% 0px" });
  for (const id of places) watch.observe(document.getElementById(id));
}
