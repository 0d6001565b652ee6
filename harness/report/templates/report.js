// Draws the charts when they scroll into view, shows tooltips for cells, and moves between cells with the arrow keys.
// The page contains all its information without this script.
const { definitions, drawings } = JSON.parse(document.getElementById("charts").textContent);

// ---------------------------------------------------------------- charts

async function draw(place) {
  const { chart, ...fill } = drawings[place.dataset.chart];
  // logLevel 1 logs only errors, not warnings about trials without looks.
  const options = {
    mode: "vega-lite", ast: true, actions: false, renderer: "svg", logLevel: 1, tooltip: { theme: "custom" },
  };
  try {
    await vegaEmbed(place, { ...definitions[chart], ...fill }, options);
  } catch (error) {
    place.textContent = `This chart cannot be drawn: ${error.message}. The table lists its figures.`;
  }
}

const places = new Set(document.querySelectorAll("[data-chart]"));

function drawOnce(place) {
  if (places.delete(place)) draw(place);
}

const inSight = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) drawOnce(entry.target);
}, { rootMargin: "600px" });

for (const place of places) {
  place.hidden = false;
  inSight.observe(place);
}

// When printing, draw every chart that is not in a closed section.
window.addEventListener("beforeprint", () => {
  [...places].filter((place) => !place.closest("details:not([open])")).forEach(drawOnce);
});

// ---------------------------------------------------------------- tooltips

const tip = document.createElement("div");
tip.id = "tip";
tip.setAttribute("role", "tooltip");
tip.hidden = true;
document.body.append(tip);

function show(link) {
  tip.textContent = link.dataset.tip;
  tip.hidden = false;
  link.setAttribute("aria-describedby", tip.id);
  const cell = link.getBoundingClientRect();
  const left = Math.min(cell.left, document.documentElement.clientWidth - tip.offsetWidth - 8);
  const below = cell.bottom + tip.offsetHeight + 8 < window.innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${below ? cell.bottom + 4 : Math.max(8, cell.top - tip.offsetHeight - 4)}px`;
}

function hide() {
  tip.hidden = true;
}

for (const kind of ["mouseover", "focusin"]) {
  document.addEventListener(kind, (event) => {
    const link = event.target.closest?.("[data-tip]");
    link ? show(link) : hide();
  });
}
// If focus moves to a cell out of view, the page scrolls, and the cell's tooltip must follow.
document.addEventListener("scroll", () => {
  const focused = document.activeElement;
  tip.hidden || !focused.matches("[data-tip]") ? hide() : show(focused);
}, { capture: true, passive: true });

// ---------------------------------------------------------------- keys

const MOVES = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };

for (const table of document.querySelectorAll("table.heat")) {
  // The Tab key stops once per table, not at every cell.
  for (const link of [...table.querySelectorAll("[data-tip]")].slice(1)) link.tabIndex = -1;
}

function neighbour(link, [down, right]) {
  const rows = [...link.closest("tbody").rows];
  let row = rows.indexOf(link.closest("tr")), column = link.closest("td").cellIndex;
  for (;;) {
    row += down;
    column += right;
    const cell = rows[row]?.cells[column];
    if (!cell || column < 1) return null;
    const found = cell.querySelector("[data-tip]");
    if (found) return found;
  }
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") hide();
  const link = event.target.closest?.(".heat [data-tip]");
  const next = link && MOVES[event.key] && neighbour(link, MOVES[event.key]);
  if (!next) return;
  event.preventDefault();
  link.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});

// ---------------------------------------------------------------- links into folded sections

function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (!target) return;
  for (let part = target; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  target.scrollIntoView();
  target.querySelector("summary")?.focus({ preventScroll: true });
}

window.addEventListener("hashchange", unfold);
unfold();
