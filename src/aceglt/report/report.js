"use strict";
(() => {
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const charts = Array.from(document.querySelectorAll("[data-figure]"));
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const phone = window.matchMedia("(max-width: 40rem)");
  const config = {
    responsive: true,
    displayModeBar: phone.matches ? false : "hover",
    displaylogo: false,
    showSendToCloud: false, // newer plotly.js offers to upload the chart unless told not to
    plotlyServerURL: "",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    toImageButtonOptions: { format: "svg", filename: "aceglt" },
  };

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // The page's colours, as paths that both a first layout and a later relayout understand.
  const theme = () => {
    const text = colour("--text"), line = colour("--line"), box = colour("--box");
    const colours = {
      "font.color": text,
      "hoverlabel.bgcolor": box,
      "hoverlabel.bordercolor": line,
      "hoverlabel.font.color": text,
      "modebar.color": colour("--muted"),
      "modebar.activecolor": text,
      "modebar.bgcolor": "rgba(0,0,0,0)",
    };
    for (const axis of ["xaxis", "yaxis"]) {
      colours[axis + ".gridcolor"] = line;
      colours[axis + ".linecolor"] = line;
      colours[axis + ".zerolinecolor"] = line;
    }
    return colours;
  };

  const layout = (own) => ({
    ...own,
    font: { family: getComputedStyle(document.body).fontFamily, size: phone.matches ? 12 : 13 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: phone.matches ? { l: 48, r: 8, t: 8, b: 48 } : { l: 64, r: 40, t: 16, b: 56 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", traceorder: "normal" },
    modebar: { orientation: "v" }, // beside the plot: above it is the legend
    hoverlabel: { align: "left" },
    hovermode: "closest",
    dragmode: false, // a finger on the chart scrolls the page
  });

  const repaint = (more) => Promise.all(charts.map((chart) => Plotly.relayout(chart, { ...theme(), ...more })));

  const show = (chart, shown, range) => {
    const visible = chart.data.map((trace) => trace.meta === "always" || shown.includes(trace.meta));
    return Plotly.update(chart, { visible }, range ? { "yaxis.range": range } : {});
  };

  // A table that goes on to the right says so until its end is reached.
  const watchScroll = (box) => {
    const inner = box.querySelector(".scroll");
    const look = () => box.classList.toggle("more", inner.scrollWidth - inner.clientWidth - inner.scrollLeft > 4);
    inner.addEventListener("scroll", look, { passive: true });
    new ResizeObserver(look).observe(inner);
    look();
  };

  const addSwitch = (chart, readings, ranges) => {
    if (readings.length < 2) return;
    const box = document.querySelector(`[data-switch="${chart.dataset.figure}"]`);
    const choices = readings.map(([key, label]) => [[key], label]);
    choices.push([readings.map(([key]) => key), "Both"]);
    for (const [shown, label] of choices) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.setAttribute("aria-pressed", String(label === choices[0][1]));
      button.addEventListener("click", () => {
        for (const other of box.children) other.setAttribute("aria-pressed", String(other === button));
        show(chart, shown, ranges && ranges[shown.length > 1 ? "Both" : shown[0]]);
      });
      box.append(button);
    }
  };

  const draw = async (chart) => {
    const { traces, readings, ranges, layout: own } = figures[chart.dataset.figure];
    await Plotly.newPlot(chart, traces, layout(own), config);
    await Plotly.relayout(chart, theme());
    addSwitch(chart, readings, ranges);
  };

  // Pictures one at a time, chosen by a slider; on paper all of them are shown.
  const addSlider = (box) => {
    const slides = Array.from(box.querySelectorAll(".slide"));
    if (slides.length < 2) return;
    const label = document.createElement("label");
    const slider = document.createElement("input");
    const told = document.createElement("output");
    label.className = "slider";
    Object.assign(slider, { type: "range", min: 0, max: slides.length - 1, value: 0 });
    slider.setAttribute("aria-label", "Level, " + box.dataset.slides);
    const choose = () => {
      const caption = slides[slider.value].querySelector("figcaption").textContent;
      slides.forEach((slide, i) => slide.classList.toggle("chosen", i === Number(slider.value)));
      slider.setAttribute("aria-valuetext", caption);
      told.textContent = caption.split(",")[0].replace("level ", "");
    };
    slider.addEventListener("input", choose);
    label.append("Level", slider, told);
    box.before(label);
    choose();
  };

  root.classList.add("scripted");
  document.querySelectorAll("[data-slides]").forEach(addSlider);
  document.querySelectorAll(".scrolls").forEach(watchScroll);
  Promise.all(charts.map(draw)).then(() => {
    root.classList.add("drawn");
    dark.addEventListener("change", () => repaint());
  });
  // Paper is white and narrower than the window.
  window.addEventListener("beforeprint", () => {
    root.classList.add("printing");
    for (const details of document.querySelectorAll("details")) details.open = true;
    repaint({ autosize: false, width: 680 });
  });
  window.addEventListener("afterprint", () => {
    root.classList.remove("printing");
    repaint({ autosize: true, width: null });
  });
})();
